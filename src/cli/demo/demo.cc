#include "cli/demo/demo.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/size.h"
#include "cli/demo/demo_cast.h"
#include "cli/demo/demo_memory.h"
#include "cli/demo/demo_view.h"
#include "cli/terminal/output.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::IntegerField;
using client::Json;

namespace {

// A program's role in the demo. Memory is in units that fit any GPU (UnitBytes).
struct Role {
  const char* name;
  double first_pct, then_pct;  // before and after the change
  unsigned first_units, then_units;
};
constexpr std::array<Role, 3> kRoles = {{
    {"training", 20, 50, 4, 4},
    {"serving", 30, 30, 3, 3},
    {"notebook", 50, 20, 2, 3},
}};
constexpr std::size_t kGreedy = 2;  // the role that asks for more memory than it may have

constexpr double kSoloSeconds = 1.5;
constexpr double kFirstPart = 0.4;             // of the time; the rest after the change
constexpr Nanos kSettle = 300 * kMillisecond;  // after a change, before what is achieved counts
constexpr Nanos kPatience = 30 * kSecond;

struct Outcome {
  double first_achieved_pct = 0, achieved_pct = 0;
  std::uint64_t memory_max_bytes = 0, memory_peak_bytes = 0;
  std::uint64_t oom_errors = 0;
  bool verified = false;
};

class Play {
 public:
  Play(const DemoStage& stage, DemoView& view, double seconds)
      : stage_(stage), view_(view), cast_(stage), seconds_(seconds) {}

  Result<std::array<Outcome, 3>> Perform() {
    if (auto r = MeasureAlone(); !r) return std::unexpected(r.error());
    if (auto r = LetAllEnter(); !r) return std::unexpected(r.error());
    if (auto r = PlayPart(kFirstPart * seconds_, &Outcome::first_achieved_pct); !r) return std::unexpected(r.error());
    if (auto r = Change(); !r) return std::unexpected(r.error());
    if (auto r = PlayPart((1 - kFirstPart) * seconds_, &Outcome::achieved_pct); !r) return std::unexpected(r.error());
    if (auto r = Conclude(); !r) return std::unexpected(r.error());
    return outcomes_;
  }

 private:
  std::uint64_t UnitBytes() const { return std::min(kGiB, stage_.memory_bytes() / 16); }

  Json Settings(double pct, unsigned units) const {
    return {{"compute_request", pct}, {"compute_limit", pct}, {"memory_limit", units * UnitBytes()}};
  }

  // Measures the speed of one program alone, to compare the shares with.
  Result<void> MeasureAlone() {
    view_.Note("measuring the speed of one program alone on " + stage_.device_name());
    if (auto r = cast_.Make("alone", Json::object()); !r) return r;
    const auto entered = cast_.Enter("alone", {"--kernel-us", "1000", "--seconds", std::to_string(kSoloSeconds)});
    if (!entered) return std::unexpected(entered.error());
    const TenantStory& story = (*entered)->story();
    if (auto r = cast_.Wait(kPatience, [&] { return story.done; }); !r) return r;
    if (story.samples.size() < 3) return Fail(EIO, "the program alone completed too little to measure its speed");
    // The first sample is from before the first kernel, the second from while it ran.
    alone_ = RateBetween(story.samples, story.samples[1].time_us, story.samples.back().time_us).value_or(0);
    if (alone_ <= 0) return Fail(EIO, "the program alone completed no kernels");
    iterations_ = story.iterations;
    cast_.Dismiss();
    return {};
  }

  Result<void> LetAllEnter() {
    const std::string memory = std::to_string(stage_.soft() ? 16 * kMiB : 256 * kMiB);
    for (std::size_t i = 0; i < kRoles.size(); ++i) {
      // Deep enough for a whole token: an empty queue gives the rest of it to the others.
      std::vector<std::string> arguments = {
          "--iterations", std::to_string(iterations_), "--memory", memory, "--depth", "50"};
      if (i == kGreedy) arguments.push_back("--grab-chunk=" + std::to_string(UnitBytes() / 16));
      const Json settings = Settings(kRoles[i].first_pct, kRoles[i].first_units);
      if (auto r = cast_.Make(kRoles[i].name, settings); !r) return r;
      const auto entered = cast_.Enter(kRoles[i].name, arguments);
      if (!entered) return std::unexpected(entered.error());
      tenants_[i] = *entered;
      targets_[i] = kRoles[i].first_pct;
    }
    view_.Note("running three programs together, each with its own limits");
    return cast_.Wait(kPatience, [&] {
      return std::ranges::all_of(tenants_, [](const DemoTenant* tenant) { return tenant->story().ready; });
    });
  }

  // Runs the programs for `seconds`, has the greedy one ask for too much meanwhile, and measures what they achieve.
  Result<void> PlayPart(double seconds, double Outcome::* achieved) {
    const Nanos begin = MonotonicNow();
    const Nanos end = begin + static_cast<Nanos>(seconds * kSecond);
    DemoTenant& greedy = *tenants_[kGreedy];
    const std::size_t refused_before = greedy.story().refused.size();
    greedy.Signal(SIGUSR1);
    bool told = false;
    const auto reached = [&] {
      if (!told && greedy.story().refused.size() > refused_before) {
        TellRefusal(greedy);
        told = true;
      }
      if (view_.Due()) view_.Show(Rows());
      return told && std::ranges::all_of(tenants_, [&](const DemoTenant* tenant) {
               return tenant->story().samples.back().time_us * kMicrosecond >= end;
             });
    };
    if (auto r = cast_.Wait(end - begin + kPatience, reached); !r) return r;
    for (std::size_t i = 0; i < kRoles.size(); ++i) {
      const auto rate = RateBetween(tenants_[i]->story().samples, (begin + kSettle) / kMicrosecond, end / kMicrosecond);
      if (!rate) return Fail(EIO, tenants_[i]->name() + " reported too little to measure its share");
      outcomes_[i].*achieved = *rate / alone_ * 100;
    }
    return {};
  }

  void TellRefusal(const DemoTenant& greedy) {
    view_.Note(greedy.name() + " allocates until it is refused: CUDA_ERROR_OUT_OF_MEMORY after " +
               FormatSize(greedy.story().refused.back()) + " more; it frees that and continues");
  }

  // Swaps two shares. Those that get less go first, because requests must never add up to more than 100 %.
  Result<void> Change() {
    std::array<std::size_t, 3> order = {0, 1, 2};
    std::ranges::sort(order, {}, [](std::size_t i) { return kRoles[i].then_pct - kRoles[i].first_pct; });
    for (const std::size_t i : order) {
      const Role& role = kRoles[i];
      if (role.first_pct == role.then_pct && role.first_units == role.then_units) continue;
      if (auto r = cast_.Set(role.name, Settings(role.then_pct, role.then_units)); !r) return r;
      targets_[i] = role.then_pct;
      std::string note = std::string(role.name) + " gets " + FormatPercent(role.then_pct) + " % instead of " +
                         FormatPercent(role.first_pct);
      if (role.first_units != role.then_units)
        note += ", and " + FormatSize(role.then_units * UnitBytes()) + " instead of " +
                FormatSize(role.first_units * UnitBytes());
      view_.Note(note);
    }
    return {};
  }

  // Takes the daemon's figures about memory, and then the programs' check of their results.
  Result<void> Conclude() {
    for (std::size_t i = 0; i < kRoles.size(); ++i) {
      const auto vgpu = cast_.Ask(kRoles[i].name);
      if (!vgpu) return std::unexpected(vgpu.error());
      outcomes_[i].memory_max_bytes = IntegerField(*vgpu, "memory_max_bytes");
      outcomes_[i].memory_peak_bytes = IntegerField(*vgpu, "memory_peak_bytes");
    }
    view_.Note("the programs end and check every result");
    if (auto r = cast_.Finish(); !r) return r;
    for (std::size_t i = 0; i < kRoles.size(); ++i) {
      outcomes_[i].oom_errors = tenants_[i]->story().refused.size();
      outcomes_[i].verified = tenants_[i]->story().verified;
    }
    cast_.Dismiss();
    return {};
  }

  std::vector<DemoRow> Rows() {
    std::vector<DemoRow> rows;
    for (std::size_t i = 0; i < kRoles.size(); ++i) {
      const auto& samples = tenants_[i]->story().samples;
      const std::int64_t end = samples.back().time_us;
      const auto rate = RateBetween(samples, std::max(samples.front().time_us, end - 1'000'000), end);
      const auto vgpu = cast_.Ask(kRoles[i].name);
      rows.push_back({.name = kRoles[i].name,
                      .target_pct = targets_[i],
                      .now_pct = rate ? std::optional(*rate / alone_ * 100) : std::nullopt,
                      .memory_bytes = vgpu ? IntegerField(*vgpu, "memory_current_bytes") : 0,
                      .memory_max_bytes = vgpu ? IntegerField(*vgpu, "memory_max_bytes") : 0});
    }
    return rows;
  }

  const DemoStage& stage_;
  DemoView& view_;
  DemoCast cast_;
  const double seconds_;
  double alone_ = 0;  // kernels per second of one program alone
  std::uint64_t iterations_ = 0;
  std::array<DemoTenant*, 3> tenants_ = {};
  std::array<double, 3> targets_ = {};
  std::array<Outcome, 3> outcomes_ = {};
};

Json JsonOf(const std::string& device, const std::array<Outcome, 3>& outcomes, const MemoryAct& memory) {
  Json vgpus = Json::array();
  for (std::size_t i = 0; i < kRoles.size(); ++i) {
    vgpus.push_back({{"name", kRoles[i].name},
                     {"compute_target_pct", kRoles[i].then_pct},
                     {"compute_achieved_pct", std::round(outcomes[i].achieved_pct * 100) / 100},
                     {"memory_max_bytes", outcomes[i].memory_max_bytes},
                     {"memory_peak_bytes", outcomes[i].memory_peak_bytes},
                     {"oom_errors", outcomes[i].oom_errors},
                     {"results_verified", outcomes[i].verified}});
  }
  return {{"device", device}, {"memory", JsonOf(memory)}, {"vgpus", vgpus}};
}

void PrintOutcomes(const std::string& device, const std::array<Outcome, 3>& outcomes) {
  Table table({{"PROGRAM"},
               {"FIRST %", Align::kRight},
               {"ACHIEVED %", Align::kRight},
               {"THEN %", Align::kRight},
               {"ACHIEVED %", Align::kRight},
               {"PEAK", Align::kRight},
               {"MAX", Align::kRight},
               {"OOM", Align::kRight},
               {"RESULTS"}});
  for (std::size_t i = 0; i < kRoles.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    table.Add({kRoles[i].name, FormatPercent(kRoles[i].first_pct), FormatPercent(outcome.first_achieved_pct),
               FormatPercent(kRoles[i].then_pct), FormatPercent(outcome.achieved_pct),
               FormatSize(outcome.memory_peak_bytes), FormatSize(outcome.memory_max_bytes),
               std::to_string(outcome.oom_errors), outcome.verified ? "right" : "WRONG"});
  }
  Print("\nTarget and achieved share on " + device + ":\n");
  Print(table);
}

}  // namespace

Result<int> Demo(const Common& common, double seconds) {
  CatchInterrupts();
  DemoView view(common.json, IsTerminal(STDOUT_FILENO));
  // Each part has a stage of its own, which is removed before the next one begins.
  std::string device;
  const auto outcomes = [&]() -> Result<std::array<Outcome, 3>> {
    const auto stage = DemoStage::Set(common);
    if (!stage) return std::unexpected(stage.error());
    device = stage->device_name();
    return Play(*stage, view, seconds).Perform();
  }();
  if (!outcomes) return std::unexpected(outcomes.error());
  const auto memory = PlayMemory(common, view);
  if (!memory) return std::unexpected(memory.error());
  if (common.json) {
    PrintJson(JsonOf(device, *outcomes, *memory));
  } else {
    PrintOutcomes(device, *outcomes);
    PrintAct(*memory);
  }
  return std::ranges::all_of(*outcomes, &Outcome::verified) && memory->Right() ? 0 : 1;
}

}  // namespace tessera::cli
