#include "sched/packing/placement.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/size.h"
#include "sched/packing/strip.h"

namespace tessera::sched {
namespace {

bool Names(const Newcomer& newcomer, const Space& space) {
  return !newcomer.space.empty() && newcomer.owner == space.owner && newcomer.space == space.name;
}

// The indices of the GPUs that may take the newcomer: the one that has its space, or all.
std::vector<std::size_t> Candidates(const Newcomer& newcomer, const std::vector<GpuRoom>& gpus) {
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    if (std::ranges::any_of(gpus[gpu].spaces, [&](const Space& space) { return Names(newcomer, space); })) return {gpu};
  }
  std::vector<std::size_t> all(gpus.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Time x SMs that are promised to no vGPU, in kWhole SMs.
Part AreaLeft(const GpuRoom& gpu) {
  Part left = kWhole - gpu.alone;
  for (const Space& space : gpu.spaces) {
    for (const Rectangle& member : space.members) left -= member.Area() / kWhole;
  }
  return left;
}

std::string LacksMemory(const char* what, std::uint64_t wanted, std::uint64_t left) {
  return what + FormatSize(wanted) + " does not fit: " + FormatSize(left) + " are left";
}

std::string NoRoomOnGpu(const Newcomer& newcomer, const GpuRoom& gpu) {
  if (!gpu.unusable.empty()) return gpu.unusable;
  if (newcomer.memory > gpu.memory_left) return LacksMemory("memory.request ", newcomer.memory, gpu.memory_left);
  if (newcomer.resident > gpu.resident_left)
    return LacksMemory("memory that stays there, ", newcomer.resident, gpu.resident_left);
  return {};
}

bool HasTime(const Newcomer& newcomer, const GpuRoom& gpu) {
  return newcomer.claim.time == 0 || TimeToKeep(gpu, &newcomer) <= kWhole;
}

// The largest whole percent, at least `least` and below `size`, for which `fits`. nullopt: for none.
template <typename Fits>
std::optional<Part> Largest(Part least, Part size, const Fits& fits) {
  Part found = least - kPercent;
  Part failed = (size + kPercent - 1) / kPercent * kPercent;
  if (least >= failed || !fits(least)) return std::nullopt;
  found = least;
  while (failed - found > kPercent) {
    const Part middle = (found + failed) / 2 / kPercent * kPercent;
    (fits(middle) ? found : failed) = middle;
  }
  return found;
}

std::string Text(const Newcomer& newcomer, Part time, Part sms) {
  char text[80];
  if (newcomer.space.empty()) {
    std::snprintf(text, sizeof text, "compute.request %g", PctOf(time));
  } else {
    std::snprintf(text, sizeof text, "compute.request %g on %g %% of the SMs", PctOf(time), PctOf(sms));
  }
  return text;
}

std::string Hint(const Newcomer& newcomer, const NearestSizes& nearest) {
  std::string hint;
  if (nearest.time) hint = Text(newcomer, *nearest.time, newcomer.claim.sms);
  if (nearest.sms) hint += (hint.empty() ? "" : ", or ") + Text(newcomer, newcomer.claim.time, *nearest.sms);
  return hint.empty() ? "lower the requests of others, or remove one" : hint + " would fit";
}

// Like "GPUs 0, 3 and 5 more".
std::string Text(const std::vector<std::size_t>& gpus) {
  constexpr std::size_t kNamed = 8;
  std::string text = gpus.size() == 1 ? "GPU " : "GPUs ";
  for (std::size_t i = 0; i < std::min(kNamed, gpus.size()); ++i) text += (i ? ", " : "") + std::to_string(gpus[i]);
  if (gpus.size() > kNamed) text += " and " + std::to_string(gpus.size() - kNamed) + " more";
  return text;
}

std::unexpected<Error> NoRoom(const Newcomer& newcomer, const std::vector<GpuRoom>& gpus,
                              const std::vector<std::size_t>& candidates) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> reasons;  // and the GPUs of each
  for (const std::size_t gpu : candidates) {
    const std::string why = WhyNot(newcomer, gpus[gpu]);
    const auto known = std::ranges::find(reasons, why, [](const auto& reason) { return reason.first; });
    if (known != reasons.end()) {
      known->second.push_back(gpu);
    } else {
      reasons.emplace_back(why, std::vector{gpu});
    }
  }
  std::string text = "no GPU has room";
  if (candidates.size() < gpus.size()) text = "the space " + newcomer.space + " lies on one GPU, which has no room";
  for (const auto& [reason, of] : reasons) text += "; " + Text(of) + ": " + reason;
  return Fail(ENOSPC, text, Hint(newcomer, NearestThatFit(newcomer, gpus)));
}

}  // namespace

Part TimeToKeep(const GpuRoom& gpu, const Newcomer* newcomer) {
  Part sum = gpu.alone;
  bool placed = newcomer == nullptr;
  for (const Space& space : gpu.spaces) {
    if (placed || !Names(*newcomer, space)) {
      sum += TimeToKeep(space.members);
    } else {
      auto members = space.members;
      members.push_back(newcomer->claim);
      sum += TimeToKeep(std::move(members));
      placed = true;
    }
  }
  return placed ? sum : sum + newcomer->claim.time;
}

std::string WhyNot(const Newcomer& newcomer, const GpuRoom& gpu) {
  if (auto why = NoRoomOnGpu(newcomer, gpu); !why.empty()) return why;
  if (HasTime(newcomer, gpu)) return {};
  char text[100];
  std::snprintf(text, sizeof text, " does not fit: all requests need %g of 100; %g without this one",
                PctOf(TimeToKeep(gpu, &newcomer)), PctOf(TimeToKeep(gpu)));
  return Text(newcomer, newcomer.claim.time, newcomer.claim.sms) + text;
}

Result<std::size_t> Place(const Newcomer& newcomer, const std::vector<GpuRoom>& gpus) {
  if (gpus.empty()) return Fail(ENODEV, "there is no GPU");
  const auto candidates = Candidates(newcomer, gpus);
  std::vector<std::tuple<Part, std::uint64_t, std::size_t>> tightest_first;
  for (const std::size_t gpu : candidates) {
    if (!NoRoomOnGpu(newcomer, gpus[gpu]).empty()) continue;
    const Part left = AreaLeft(gpus[gpu]) - newcomer.claim.Area() / kWhole;
    if (left >= 0 || newcomer.claim.time == 0) tightest_first.emplace_back(left, gpus[gpu].memory_left, gpu);
  }
  std::ranges::sort(tightest_first);
  for (const auto& [_, memory, gpu] : tightest_first) {
    if (HasTime(newcomer, gpus[gpu])) return gpu;
  }
  return NoRoom(newcomer, gpus, candidates);
}

NearestSizes NearestThatFit(const Newcomer& newcomer, const std::vector<GpuRoom>& gpus) {
  NearestSizes nearest;
  for (const std::size_t index : Candidates(newcomer, gpus)) {
    const GpuRoom& gpu = gpus[index];
    if (!NoRoomOnGpu(newcomer, gpu).empty()) continue;
    const auto fits = [&](Part Rectangle::* side) {
      return [&newcomer, &gpu, side](Part size) {
        Newcomer smaller = newcomer;
        smaller.claim.*side = size;
        return HasTime(smaller, gpu);
      };
    };
    // Only what is more than another GPU has.
    const auto above = [](const std::optional<Part>& found) { return found.value_or(0) + kPercent; };
    if (const auto time = Largest(above(nearest.time), newcomer.claim.time, fits(&Rectangle::time)))
      nearest.time = time;
    if (newcomer.space.empty()) continue;
    if (const auto sms = Largest(above(nearest.sms), newcomer.claim.sms, fits(&Rectangle::sms))) nearest.sms = sms;
  }
  return nearest;
}

}  // namespace tessera::sched
