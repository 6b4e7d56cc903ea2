#include "sched/fleet/advice.h"

#include <algorithm>
#include <iterator>

namespace tessera::sched {

const char* NameOf(Advice::Kind kind) {
  switch (kind) {
    case Advice::Kind::kRequestTooLarge:
      return "request-too-large";
    case Advice::Kind::kMemoryTooLarge:
      return "memory-too-large";
    case Advice::Kind::kLimitTooSmall:
      return "limit-too-small";
    case Advice::Kind::kApart:
      return "apart";
    case Advice::Kind::kTogether:
      return "together";
  }
  return "";
}

double WantedPart(const MeteredVgpu& vgpu, const UsedSample& used) {
  const double wanted = std::min(1.0, used.duty + std::max(0.0, used.waited - used.throttled));
  return vgpu.space.empty() ? wanted : wanted * vgpu.sm_pct / 100;
}

bool FitTogether(const MeteredFleet& fleet, const MeteredGpu& gpu, const std::vector<std::size_t>& vgpus,
                 const AdviceRules& rules) {
  double request_pct = 0;
  std::uint64_t promised = 0;
  std::size_t samples = 0;
  for (const std::size_t each : vgpus) {
    const MeteredVgpu& vgpu = fleet.vgpus[each];
    request_pct += vgpu.request_pct;
    promised += vgpu.memory_request;
    samples = std::max(samples, vgpu.samples.size());
  }
  if (request_pct > 100 + 1e-9 || promised > gpu.memory) return false;
  const double most_memory = static_cast<double>(gpu.memory) * (1 + rules.swap);
  std::size_t over = 0;
  for (std::size_t at = 0; at < samples; ++at) {
    double time = 0, memory = 0;
    for (const std::size_t each : vgpus) {
      const MeteredVgpu& vgpu = fleet.vgpus[each];
      const UsedSample& used = vgpu.samples[at];
      time += WantedPart(vgpu, used);
      memory += static_cast<double>(used.memory);
    }
    if (time > 1 + 1e-9 || memory > most_memory) ++over;
  }
  return static_cast<double>(over) <= rules.over * static_cast<double>(samples);
}

std::vector<Advice> Advise(MeteredFleet fleet, const AdviceRules& rules) {
  std::vector<Advice> all = AdviseSizes(fleet, rules);
  std::ranges::move(AdvisePairs(fleet, rules), std::back_inserter(all));
  for (const Advice& advice : all) {
    MeteredVgpu& vgpu = fleet.vgpus[advice.vgpus.front()];
    if (advice.request_pct) vgpu.request_pct = *advice.request_pct;
    if (advice.memory_request) vgpu.memory_request = *advice.memory_request;
  }
  std::ranges::move(AdvisePacking(fleet, rules), std::back_inserter(all));
  return all;
}

}  // namespace tessera::sched
