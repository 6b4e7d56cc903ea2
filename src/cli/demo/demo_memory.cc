#include "cli/demo/demo_memory.h"

#include <signal.h>

#include <algorithm>

#include "base/size.h"
#include "cli/demo/demo_cast.h"
#include "cli/terminal/output.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::Field;
using client::IntegerField;
using client::Json;

namespace {

constexpr std::array<const char*, 2> kNames = {"first", "second"};
constexpr const char* kSmallGpu = "1x1GiB";
constexpr std::uint64_t kWantedPercent = 70;  // of the GPU's memory, each
constexpr const char* kSeconds = "2";         // of work, each
constexpr Nanos kMemoryPatience = 30 * kSecond;
constexpr Nanos kTellEvery = kSecond;
// Moving a large GPU's memory takes long, and pinned host memory for it must be allocated first.
constexpr Nanos kMovePatience = 180 * kSecond;

// A program's last message without its name: "cuMemAlloc of --memory: CUDA_ERROR_OUT_OF_MEMORY".
std::string Reason(const TenantStory& story) {
  const std::size_t colon = story.complaint.find(": ");
  if (story.complaint.empty()) return "no message";
  return colon == std::string::npos ? story.complaint : story.complaint.substr(colon + 2);
}

class MemoryPlay {
 public:
  MemoryPlay(const DemoStage& stage, DemoView& view) : stage_(stage), view_(view), cast_(stage) {
    act_.device = stage.device_name();
    act_.gpu_bytes = stage.memory_bytes();
    act_.wanted_bytes = stage.memory_bytes() / 100 * kWantedPercent;
  }

  Result<MemoryAct> Perform() {
    auto hindrance = Hindrance();
    if (!hindrance) return std::unexpected(hindrance.error());
    act_.skipped = *hindrance;
    if (!act_.skipped.empty()) {
      view_.Note("skipping the memory part: " + act_.skipped);
      return act_;
    }
    // Made now already: an embedded daemon without vGPUs ends after two seconds.
    for (const char* name : kNames) {
      if (auto r = cast_.Make(name, Json::object()); !r) return std::unexpected(r.error());
    }
    if (auto r = WithoutTessera(); !r) return std::unexpected(r.error());
    if (auto r = WithTessera(); !r) return std::unexpected(r.error());
    return act_;
  }

 private:
  std::vector<std::string> Arguments() const {
    std::vector<std::string> arguments = {"--memory", std::to_string(act_.wanted_bytes), "--seconds", kSeconds};
    if (iterations_ > 0) arguments.push_back("--iterations=" + std::to_string(iterations_));
    return arguments;
  }

  // Why this part cannot run here; empty if it can.
  Result<std::string> Hindrance() const {
    const auto answer = stage_.client().Get("/v1/gpus");
    if (!answer) return std::unexpected(answer.error());
    const Json& gpu = Field(*answer, "gpus")[0];
    const std::uint64_t others = IntegerField(gpu, "memory_unmanaged_bytes");
    const std::uint64_t reserve = IntegerField(gpu, "memory_reserve_bytes");
    const std::uint64_t swap = IntegerField(Field(gpu, "swap"), "max_bytes");
    const std::uint64_t needed = HostMemoryNeeded(gpu, act_.wanted_bytes);
    if (act_.wanted_bytes + others + reserve > act_.gpu_bytes)
      return "other programs use " + FormatSize(others) + " of the GPU's " + FormatSize(act_.gpu_bytes);
    if (swap < needed)
      return "it needs " + FormatSize(needed) + " of host memory, and " + FormatSize(swap) + " may be used";
    return std::string();
  }

  Result<void> WithoutTessera() {
    view_.Note("without Tessera: two programs that each want " + FormatSize(act_.wanted_bytes) + " of a GPU with " +
               FormatSize(act_.gpu_bytes));
    std::array<DemoTenant*, 2> tenants = {};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      auto entered = cast_.EnterWithoutTessera(kNames[i], Arguments());
      if (!entered) return std::unexpected(entered.error());
      tenants[i] = *entered;
      const auto settled = [&] { return tenants[i]->story().ready || tenants[i]->ended(); };
      if (auto r = cast_.Wait(kMemoryPatience, settled); !r) return r;
      iterations_ = std::max(iterations_, tenants[i]->story().iterations);
    }
    if (auto r = cast_.Finish(); !r) return r;
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const TenantStory& story = tenants[i]->story();
      if (!story.done) act_.programs[i].died_of = Reason(story);
      view_.Note(std::string(kNames[i]) + (story.done ? " finishes" : " fails: " + act_.programs[i].died_of));
    }
    cast_.Dismiss();
    return {};
  }

  Result<void> WithTessera() {
    view_.Note("with Tessera: the same two programs");
    const Nanos begin = MonotonicNow();
    std::array<DemoTenant*, 2> tenants = {};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      auto entered = cast_.Enter(kNames[i], Arguments());
      if (!entered) return std::unexpected(entered.error());
      tenants[i] = *entered;
    }
    std::string told;
    Nanos tell_at = begin + kTellEvery;
    const auto done = [&] {
      if (const Nanos now = MonotonicNow(); now >= tell_at) {
        TellWhere(told);
        tell_at = now + kTellEvery;
      }
      return std::ranges::all_of(tenants, [](const DemoTenant* tenant) { return tenant->story().done; });
    };
    if (auto r = cast_.Wait(kMovePatience, done); !r) return r;
    act_.seconds = 1e-9 * static_cast<double>(MonotonicNow() - begin);
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const auto vgpu = cast_.Ask(kNames[i]);
      if (!vgpu) return std::unexpected(vgpu.error());
      MemoryAct::Program& program = act_.programs[i];
      program.verified = tenants[i]->story().verified;
      program.moved_out_bytes = IntegerField(*vgpu, "moved_out_bytes");
      program.moved_in_bytes = IntegerField(*vgpu, "moved_in_bytes");
      program.moving_us = IntegerField(*vgpu, "moving_us");
    }
    view_.Note("both finish and check every result");
    cast_.Dismiss();
    return {};
  }

  // Shows where their memory is, if that has changed.
  void TellWhere(std::string& told) {
    std::string text;
    for (const char* name : kNames) {
      const auto vgpu = cast_.Ask(name);
      if (!vgpu) return;
      text += (text.empty() ? "" : "; ") + std::string(name) + ": " +
              FormatSize(IntegerField(*vgpu, "memory_resident_bytes")) + " on the GPU, " +
              FormatSize(IntegerField(*vgpu, "memory_swap_current_bytes")) + " in host memory";
    }
    if (text != told) view_.Note(text);
    told = text;
  }

  const DemoStage& stage_;
  DemoView& view_;
  DemoCast cast_;
  std::uint64_t iterations_ = 0;
  MemoryAct act_;
};

}  // namespace

Result<MemoryAct> PlayMemory(Common common, DemoView& view) {
  common.soft_spec = kSmallGpu;
  const auto stage = DemoStage::Set(common);
  if (!stage) return std::unexpected(stage.error());
  return MemoryPlay(*stage, view).Perform();
}

std::uint64_t HostMemoryNeeded(const Json& gpu, std::uint64_t wanted) {
  const std::uint64_t total = IntegerField(gpu, "memory_total_bytes");
  const std::uint64_t spare = std::min(kGiB, total / 4);
  const std::uint64_t all = 2 * wanted + 3 * IntegerField(gpu, "context_bytes") +
                            IntegerField(gpu, "memory_reserve_bytes") + IntegerField(gpu, "memory_unmanaged_bytes") +
                            spare;
  return all > total ? all - total : 0;
}

Json JsonOf(const MemoryAct& act) {
  if (!act.skipped.empty()) return {{"skipped", act.skipped}};
  Json programs = Json::array();
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const MemoryAct::Program& program = act.programs[i];
    programs.push_back({{"name", kNames[i]},
                        {"died_without", program.died_of.empty() ? Json() : Json(program.died_of)},
                        {"results_verified", program.verified},
                        {"moved_out_bytes", program.moved_out_bytes},
                        {"moved_in_bytes", program.moved_in_bytes},
                        {"moving_us", program.moving_us}});
  }
  return {{"device", act.device},
          {"gpu_bytes", act.gpu_bytes},
          {"wanted_bytes", act.wanted_bytes},
          {"seconds", act.seconds},
          {"programs", std::move(programs)}};
}

void PrintAct(const MemoryAct& act) {
  if (!act.skipped.empty()) return Print("\nTwo programs that do not fit together: skipped, " + act.skipped + "\n");
  Table table({{"PROGRAM"},
               {"WITHOUT TESSERA"},
               {"WITH TESSERA"},
               {"MOVED OUT", Align::kRight},
               {"MOVED IN", Align::kRight},
               {"MOVING", Align::kRight}});
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const MemoryAct::Program& program = act.programs[i];
    table.Add({kNames[i], program.died_of.empty() ? "finishes" : "fails: " + program.died_of,
               program.verified ? "finishes, results right" : "results WRONG", FormatSize(program.moved_out_bytes),
               FormatSize(program.moved_in_bytes), FormatMicroseconds(program.moving_us)});
  }
  Print("\nTwo programs that each want " + FormatSize(act.wanted_bytes) + " on " + act.device + " with " +
        FormatSize(act.gpu_bytes) + ":\n");
  Print(table);
}

}  // namespace tessera::cli
