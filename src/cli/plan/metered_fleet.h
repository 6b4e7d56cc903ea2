#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/result.h"
#include "sched/fleet/advice.h"

namespace tessera::cli {

// The pod whose vGPU it is, as the vGPU's labels say. Empty: none is known.
struct PodOfVgpu {
  std::string namespace_name, pod;
};

// What was seen, ready for sched::Advise.
struct SeenFleet {
  sched::MeteredFleet fleet;
  std::map<std::size_t, PodOfVgpu> pods;  // by index of the vGPU
  std::string by;                         // "20 samples of 0.5 s each", for people
};

// Puts together what sources tell of GPUs and vGPUs, in any order. Not thread-safe.
class SeenFleetBuilder {
 public:
  static constexpr std::size_t kMostSamples = 50'000'000;  // 2 GiB

  // The GPU's index; made when it is named first. References to `Gpu` are valid until the next call.
  std::size_t GpuIndex(const std::string& node, const std::string& gpu);
  sched::MeteredGpu& Gpu(std::size_t index) { return seen_.fleet.gpus[index]; }
  // Likewise; a vGPU is one of its node, whatever GPU it is on.
  std::size_t VgpuIndex(const std::string& node, const std::string& name);
  sched::MeteredVgpu& Vgpu(std::size_t index) { return seen_.fleet.vgpus[index]; }
  void SetPod(std::size_t vgpu, PodOfVgpu pod) { seen_.pods[vgpu] = std::move(pod); }
  // The vGPU's sample of this moment, from 0 on. E2BIG: there would be more than kMostSamples in all.
  Result<sched::UsedSample*> Sample(std::size_t vgpu, std::size_t moment);

  std::size_t moments() const { return moments_; }
  // All that was told; each vGPU has a sample of each moment. ENODATA: nothing was.
  Result<SeenFleet> Finish(std::string by);

 private:
  SeenFleet seen_;
  std::map<std::pair<std::string, std::string>, std::size_t> gpus_, vgpus_;
  std::size_t moments_ = 0;
};

}  // namespace tessera::cli
