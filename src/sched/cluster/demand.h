#pragma once

#include <compare>
#include <cstdint>

namespace tessera::sched {

constexpr std::int32_t kGpuMilli = 1000;  // a whole GPU

// Types of GPU, a bit each; whoever reads the input numbers them.
using GpuModels = std::uint64_t;
constexpr int kMostGpuModels = 64;

// What a pod asks of a node of a fleet. It is a part of one GPU, or whole GPUs, or none.
struct Demand {
  std::int32_t cpu = 0;     // thousandths of a processor
  std::int32_t memory = 0;  // MiB of the host's memory
  std::int32_t gpus = 0;    // at most kMostGpus
  std::int32_t gpu_milli =
      0;                 // of each of them, in (0, kGpuMilli]; kGpuMilli if there are several; 0 if there are none
  GpuModels models = 0;  // which it can use; 0: all

  std::int64_t TotalMilli() const { return std::int64_t{gpus} * gpu_milli; }
  bool IsPart() const { return gpus == 1 && gpu_milli < kGpuMilli; }
  friend auto operator<=>(const Demand&, const Demand&) = default;
};

}  // namespace tessera::sched
