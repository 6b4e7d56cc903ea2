#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "plan/workload/tenant.h"

namespace tessera::plan {

// What vGPUs used in a trace, gathered from its events in any order. Times are since the trace's begin.
class TraceUse {
 public:
  static constexpr std::size_t kMostIntervals = 100'000;   // of a trace; beyond that, they become longer
  static constexpr std::size_t kMostSamples = 50'000'000;  // of all vGPUs

  // `length` above 0.
  TraceUse(Nanos length, Nanos interval);

  // The vGPU of this track, on this GPU, had work then. What lies outside of the trace is cut off. ERANGE: too many
  // vGPUs.
  Result<void> AddWork(std::int64_t gpu, std::int64_t track, Nanos begin, Nanos end);
  // The vGPU of this name has so much memory from then on.
  void AddMemory(std::int64_t gpu, const std::string& name, Nanos at, std::uint64_t bytes);
  // The vGPU of this name was made or removed then. In the order of time. Of others it is not known: they were there.
  void AddBegin(std::int64_t gpu, const std::string& name, Nanos at);
  void AddEnd(std::int64_t gpu, const std::string& name, Nanos at);
  void NameTrack(std::int64_t gpu, std::int64_t track, const std::string& name);
  void NameGpu(std::int64_t gpu, const std::string& name);

  // A tenant for each vGPU, by GPU and name. At most once. ERANGE: too many vGPUs.
  Result<Workload> Take();

 private:
  struct Work {
    std::vector<Nanos> part;          // of each interval
    std::vector<std::int32_t> whole;  // how many more spans than in the interval before fill it
  };
  struct Change {
    Nanos at = 0;
    std::uint64_t bytes = 0;
  };
  // What is known by name.
  struct Named {
    std::vector<Change> memory;
    std::optional<Nanos> begin, end;
  };
  using Track = std::pair<std::int64_t, std::int64_t>;     // GPU and track
  using NameOnGpu = std::pair<std::int64_t, std::string>;  // GPU and name

  std::vector<UseSample> Samples(const Work* work, Named& named);
  std::size_t At(Nanos at) const { return std::min(static_cast<std::size_t>(at / interval_), intervals_ - 1); }

  const Nanos length_;
  const Nanos interval_;
  const std::size_t intervals_;  // the last one is up to half as long again, or half as long
  std::map<Track, Work> work_;
  std::map<Track, std::string> names_;
  std::map<NameOnGpu, Named> named_;
  std::map<std::int64_t, std::string> gpus_;
  std::uint64_t guessed_ = 0;  // vGPUs whose memory is not known before it changes
};

}  // namespace tessera::plan
