#include "cli/plan/metered_fleet.h"

#include <algorithm>

namespace tessera::cli {

std::size_t SeenFleetBuilder::GpuIndex(const std::string& node, const std::string& gpu) {
  const auto [known, first] = gpus_.try_emplace({node, gpu}, seen_.fleet.gpus.size());
  if (first) seen_.fleet.gpus.push_back({.node = node, .gpu = gpu, .type = {}, .memory = 0});
  return known->second;
}

std::size_t SeenFleetBuilder::VgpuIndex(const std::string& node, const std::string& name) {
  const auto [known, first] = vgpus_.try_emplace({node, name}, seen_.fleet.vgpus.size());
  if (first) {
    seen_.fleet.vgpus.emplace_back();
    seen_.fleet.vgpus.back().name = name;
  }
  return known->second;
}

Result<sched::UsedSample*> SeenFleetBuilder::Sample(std::size_t vgpu, std::size_t moment) {
  moments_ = std::max(moments_, moment + 1);
  if (seen_.fleet.vgpus.size() > kMostSamples / moments_) {
    return Fail(E2BIG,
                std::to_string(seen_.fleet.vgpus.size()) + " vGPUs at " + std::to_string(moments_) +
                    " moments are more than can be compared",
                "take a shorter time, or fewer moments");
  }
  auto& samples = Vgpu(vgpu).samples;
  if (samples.size() <= moment) samples.resize(moment + 1);
  return &samples[moment];
}

Result<SeenFleet> SeenFleetBuilder::Finish(std::string by) {
  if (moments_ == 0) return Fail(ENODATA, "no vGPU was seen", "make one with 'tessera vgpu create', or look longer");
  for (auto& vgpu : seen_.fleet.vgpus) vgpu.samples.resize(moments_);
  seen_.by = std::move(by);
  return std::move(seen_);
}

}  // namespace tessera::cli
