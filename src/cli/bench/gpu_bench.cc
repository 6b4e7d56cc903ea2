#include "cli/bench/gpu_bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/size.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::Field;
using client::IntegerField;
using client::Json;
using client::NumberField;
using client::TextField;
using client::TextsField;

namespace {

constexpr Nanos kStepLimit = 60 * kSecond;
constexpr Nanos kBeforeRate = 300 * kMillisecond;
constexpr const char* kFirstVgpu = "bench-first";
constexpr const char* kOtherVgpu = "bench-other";
constexpr const char* kPairSpace = "bench-";

}  // namespace

Result<GpuFigures> GpuBench::Measure() {
  // The stage's daemon would end without any vGPU.
  if (auto r = cast_.Make("bench-stays", Json::object()); !r) return std::unexpected(r.error());
  note_("a busy program alone");
  if (auto r = Alone(); !r) return std::unexpected(r.error());
  note_("freezes and thaws");
  if (auto r = Freezes(); !r) return std::unexpected(r.error());
  note_("switches between two programs");
  if (auto r = Switches(); !r) return std::unexpected(r.error());
  cast_.Dismiss();
  note_("memory that moves to the host and back");
  if (auto r = Moves(); !r) return std::unexpected(r.error());
  cast_.Dismiss();
  note_("the bandwidth of the memory");
  if (auto r = Bandwidth(); !r) return std::unexpected(r.error());
  cast_.Dismiss();
  note_("two programs at once in a space");
  auto compute = Pair(Busy());
  if (!compute) return std::unexpected(compute.error());
  figures_.compute = *compute;
  if (!figures_.compute) return figures_;
  auto sweeps = Pair(Sweeping());
  if (!sweeps) return std::unexpected(sweeps.error());
  figures_.sweeps = *sweeps;
  if (figures_.sweeps) {
    const double bytes = 2.0 * static_cast<double>(SweepBytes());
    for (double* rate : {&figures_.sweeps->alone, &figures_.sweeps->first, &figures_.sweeps->second}) *rate *= bytes;
  }
  return figures_;
}

Result<void> GpuBench::Alone() {
  auto gpu = GpuWhenTested();
  if (!gpu) return std::unexpected(gpu.error());
  figures_.device = stage_.device_name();
  figures_.driver = TextField(*gpu, "driver", "unknown");
  figures_.soft = stage_.soft();
  figures_.memory = stage_.memory_bytes() - std::min(stage_.memory_bytes(), IntegerField(*gpu, "memory_reserve_bytes"));
  const Json& control = Field(*gpu, "control");
  steered_ = TextField(control, "by") == "channels";
  if (!steered_)
    figures_.missing.push_back("Channels are not steered here (" + TextField(control, "why") +
                               "): freeze_us, thaw_us and switch_us are an H200's.");
  const auto first = Enter(kFirstVgpu, Json::object(), Busy());
  if (!first) return std::unexpected(first.error());
  first_ = *first;
  iterations_ = first_->story().iterations;
  figures_.sms = static_cast<std::uint32_t>(first_->story().sms);
  gpu = Gpu();  // it knows now what a context takes
  if (!gpu) return std::unexpected(gpu.error());
  figures_.context = IntegerField(*gpu, "context_bytes");
  return {};
}

Result<void> GpuBench::Freezes() {
  if (!steered_) return {};
  for (int i = 0; i < (stage_.soft() ? 10 : 100); ++i) {
    if (auto r = Act(kFirstVgpu, "freeze", Json::object()); !r) return r;
    if (auto r = Act(kFirstVgpu, "thaw", Json::object()); !r) return r;
  }
  const auto gpu = Gpu();
  if (!gpu) return std::unexpected(gpu.error());
  const Json& control = Field(*gpu, "control");
  if (IntegerField(control, "freezes") == 0 || IntegerField(control, "thaws") == 0)
    return Fail(EIO, "the daemon froze nothing", "see its log, and 'tessera doctor'");
  figures_.freeze_us = NumberField(control, "freeze_p50_us");
  figures_.thaw_us = NumberField(control, "thaw_p50_us");
  return {};
}

Result<void> GpuBench::Switches() {
  if (!steered_) return {};
  // A switch is a small part of a slice: both are measured for longer, and one right after the other.
  const auto alone = Rates({first_}, 3 * WindowSeconds());
  if (!alone) return std::unexpected(alone.error());
  const auto second = Enter(kOtherVgpu, Json::object(), Busy());
  if (!second) return std::unexpected(second.error());
  const auto rates = Rates({first_, *second}, 3 * WindowSeconds());
  if (!rates) return std::unexpected(rates.error());
  const auto vgpu = cast_.Ask(kFirstVgpu);
  if (!vgpu) return std::unexpected(vgpu.error());
  figures_.slice_us = NumberField(*vgpu, "slice_us");
  if (figures_.slice_us > 0) {
    figures_.switch_us = SwitchMicroseconds(figures_.slice_us, alone->front(), (*rates)[0] + (*rates)[1]);
  } else {
    figures_.missing.emplace_back("The two had no slices of their own: switch_us is an H200's.");
  }
  return {};
}

Result<void> GpuBench::Moves() {
  const auto gpu = Gpu();
  if (!gpu) return std::unexpected(gpu.error());
  const std::uint64_t room = IntegerField(Field(*gpu, "swap"), "max_bytes");
  const std::uint64_t size = std::min(stage_.soft() ? 128 * kMiB : 8 * kGiB, stage_.memory_bytes() / 8) / kMiB * kMiB;
  if (room < 2 * size) {
    figures_.missing.push_back("There is no host memory for " + FormatSize(size) +
                               " that move: out_gb_s and in_gb_s are as most PCIe of the fifth generation has them.");
    return {};
  }
  // It works now and then, so that its memory comes back when it may run again.
  const auto tenant = Enter(
      kFirstVgpu, Json::object(),
      {"--memory", std::to_string(size), "--iterations", "1", "--burst", "1", "--depth", "1", "--idle-us", "20000"});
  if (!tenant) return std::unexpected(tenant.error());
  const auto moved = [&](const Json& vgpu) {
    return TextsField(vgpu, "frozen").contains("move") ? std::nullopt
                                                       : std::optional(IntegerField(vgpu, "memory_swap_current_bytes"));
  };
  const auto out = [&](const Json& vgpu) { return moved(vgpu) >= std::optional(size - size / 16); };
  const auto in = [&](const Json& vgpu) { return moved(vgpu) && *moved(vgpu) <= size / 16; };
  // The second time: by then the host memory has been made.
  for (int i = 0; i < 2; ++i) {
    const auto there = MoveRate(
        kFirstVgpu, "moved_out_bytes",
        [&]() -> Result<void> {
          if (auto r = Act(kFirstVgpu, "freeze", Json::object()); !r) return r;
          return Act(kFirstVgpu, "evict", {{"to_bytes", 0}});
        },
        out);
    if (!there) return std::unexpected(there.error());
    const auto back =
        MoveRate(kFirstVgpu, "moved_in_bytes", [&] { return Act(kFirstVgpu, "thaw", Json::object()); }, in);
    if (!back) return std::unexpected(back.error());
    figures_.out_per_s = *there;
    figures_.in_per_s = *back;
  }
  if (!figures_.out_per_s || !figures_.in_per_s)
    figures_.missing.emplace_back("The daemon did not tell how long memory moved: out_gb_s or in_gb_s is an H200's.");
  return {};
}

Result<std::optional<double>> GpuBench::MoveRate(const std::string& name, const char* moved,
                                                 const std::function<Result<void>()>& begin,
                                                 const std::function<bool(const Json& vgpu)>& done) {
  const auto before = cast_.Ask(name);
  if (!before) return std::unexpected(before.error());
  if (auto begun = begin(); !begun) return std::unexpected(begun.error());
  Result<Json> after = *before;
  const auto ended = [&] {
    after = cast_.Ask(name);
    return !after || done(*after);
  };
  if (auto waited = cast_.Wait(kStepLimit, ended); !waited) return std::unexpected(waited.error());
  if (!after) return std::unexpected(after.error());
  const double bytes = static_cast<double>(IntegerField(*after, moved) - IntegerField(*before, moved));
  const double microseconds =
      static_cast<double>(IntegerField(*after, "moving_us") - IntegerField(*before, "moving_us"));
  if (bytes <= 0 || microseconds <= 0) return std::optional<double>();
  return std::optional(bytes * 1e6 / microseconds);
}

Result<void> GpuBench::Bandwidth() {
  const auto tenant = Enter(kFirstVgpu, Json::object(), Sweeping());
  if (!tenant) return std::unexpected(tenant.error());
  const auto rates = Rates({*tenant}, WindowSeconds());
  if (!rates) return std::unexpected(rates.error());
  figures_.bandwidth = rates->front() * 2.0 * static_cast<double>(SweepBytes());  // each byte is read and written
  return {};
}

Result<std::optional<PairFigures>> GpuBench::Pair(const Arguments& arguments) {
  // A new one, as the last one's server may still be ending.
  const Json half = {{"space", kPairSpace + std::to_string(++spaces_)}, {"sm_limit", 50}};
  const auto first = Enter(kFirstVgpu, half, arguments);
  if (!first && first.error().code == EINTR) return std::unexpected(first.error());
  if (!first) {
    figures_.missing.push_back("No programs at once, because there is no space (" + first.error().message +
                               "): space_speed is left at 1.");
    cast_.Dismiss();
    return std::optional<PairFigures>();
  }
  const auto alone = Rates({*first}, WindowSeconds());
  if (!alone) return std::unexpected(alone.error());
  const auto second = Enter(kOtherVgpu, half, arguments);
  if (!second) return std::unexpected(second.error());
  const auto both = Rates({*first, *second}, WindowSeconds());
  if (!both) return std::unexpected(both.error());
  cast_.Dismiss();
  return std::optional(PairFigures{.alone = alone->front(), .first = (*both)[0], .second = (*both)[1]});
}

Result<Json> GpuBench::Gpu() const {
  const auto answer = stage_.client().Get("/v1/gpus");
  if (!answer) return std::unexpected(answer.error());
  const Json& gpus = Field(*answer, "gpus");
  if (gpus.size() <= stage_.gpu()) return Fail(EIO, "the daemon has lost the GPU", "see 'tessera doctor'");
  return gpus[stage_.gpu()];
}

// The daemon finds out at its start whether it can steer channels.
Result<Json> GpuBench::GpuWhenTested() {
  Result<Json> gpu = Json();
  const auto tested = [&] {
    gpu = Gpu();
    return !gpu || !TextField(Field(*gpu, "control"), "why").contains("under way");
  };
  if (auto waited = cast_.Wait(kStepLimit, tested); !waited) return std::unexpected(waited.error());
  return gpu;
}

Result<DemoTenant*> GpuBench::Enter(const std::string& name, const Json& settings, Arguments arguments) {
  if (auto made = cast_.Make(name, settings); !made) return std::unexpected(made.error());
  arguments.insert(arguments.end(), {"--report-every", "20"});
  const auto tenant = cast_.Enter(name, arguments);
  if (!tenant) return std::unexpected(tenant.error());
  const auto works = [&] { return (*tenant)->story().samples.size() >= 2; };
  if (auto waited = cast_.Wait(kStepLimit, works); !waited) return std::unexpected(waited.error());
  return *tenant;
}

Result<std::vector<double>> GpuBench::Rates(const std::vector<const DemoTenant*>& tenants, double seconds) {
  const std::int64_t begin = (MonotonicNow() + kBeforeRate) / kMicrosecond;
  const std::int64_t end = begin + static_cast<std::int64_t>(seconds * 1e6);
  const auto told = [&] {
    return std::ranges::all_of(tenants,
                               [&](const DemoTenant* tenant) { return tenant->story().samples.back().time_us >= end; });
  };
  if (auto waited = cast_.Wait(kStepLimit, told); !waited) return std::unexpected(waited.error());
  std::vector<double> rates;
  for (const DemoTenant* tenant : tenants) {
    const auto rate = RateBetween(tenant->story().samples, begin, end);
    if (!rate || *rate <= 0) return Fail(EIO, "a program completed too little to be measured");
    rates.push_back(*rate);
  }
  return rates;
}

Result<void> GpuBench::Act(const std::string& name, const char* verb, const Json& body) const {
  const auto done = stage_.client().Post("/v1/vgpus/" + name + "/" + verb, body);
  if (!done) return std::unexpected(done.error());
  return {};
}

// Many small blocks fill any number of SMs evenly. The soft GPU's processors have no use for more than one.
GpuBench::Arguments GpuBench::Busy() const {
  Arguments arguments = {"--blocks", stage_.soft() ? "1" : "21120", "--threads", stage_.soft() ? "32" : "256"};
  if (iterations_ > 0)
    arguments.insert(arguments.end(), {"--iterations", std::to_string(iterations_)});
  else
    arguments.insert(arguments.end(), {"--kernel-us", "1000"});
  return arguments;
}

GpuBench::Arguments GpuBench::Sweeping() const {
  return {"--blocks", stage_.soft() ? "1" : "21120", "--threads", stage_.soft() ? "32" : "256",
          "--depth",  stage_.soft() ? "1" : "4",     "--sweep",   std::to_string(SweepBytes())};
}

// More than any cache.
std::uint64_t GpuBench::SweepBytes() const { return stage_.soft() ? 64 * kKiB : kGiB; }

}  // namespace tessera::cli
