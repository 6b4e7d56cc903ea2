#include <algorithm>
#include <cmath>

#include "base/size.h"
#include "sched/fleet/advice.h"
#include "sched/fleet/advice_words.h"

namespace tessera::sched {
namespace {

// The least value that at most one of a hundred exceeds; 0 without values.
double Percentile99(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(values.size()))) - 1;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(rank));
  return values[rank];
}

double UpToFive(double pct) { return std::clamp(std::ceil(pct / 5 - 1e-9) * 5, 5.0, 100.0); }

std::uint64_t UpTo256MiB(double bytes) {
  constexpr double kStep = 256 << 20;
  return static_cast<std::uint64_t>(std::max(1.0, std::ceil(bytes / kStep)) * kStep);
}

void AdviseRequest(std::size_t index, const MeteredVgpu& vgpu, const std::vector<double>& duty,
                   const AdviceRules& rules, std::vector<Advice>& all) {
  if (vgpu.goal) return;
  const double used = 100 * Percentile99(duty);
  const double enough = UpToFive(used * (1 + rules.margin));
  if (vgpu.request_pct - enough < rules.least_gain_pct) return;
  all.push_back({.kind = Advice::Kind::kRequestTooLarge,
                 .vgpus = {index},
                 .reason = vgpu.name + " is guaranteed " + PctWords(vgpu.request_pct) +
                           " of the GPU's time, and used " + PctWords(used) +
                           " or less in 99 of 100 samples: " + PctWords(enough) + " suffices",
                 .figures = {{"request_pct", vgpu.request_pct}, {"used_p99_pct", used}},
                 .request_pct = enough});
}

void AdviseMemory(std::size_t index, const MeteredVgpu& vgpu, const std::vector<double>& memory,
                  const AdviceRules& rules, std::vector<Advice>& all) {
  const double used = Percentile99(memory);
  const std::uint64_t enough = UpTo256MiB(used * (1 + rules.memory_margin));
  if (vgpu.memory_request < enough + rules.least_gain) return;
  all.push_back(
      {.kind = Advice::Kind::kMemoryTooLarge,
       .vgpus = {index},
       .reason = vgpu.name + " is promised " + FormatSize(vgpu.memory_request) + ", and had " +
                 FormatSize(static_cast<std::uint64_t>(used)) + " or less in 99 of 100 samples: " + FormatSize(enough) +
                 " suffices",
       .figures = {{"memory_request_bytes", static_cast<double>(vgpu.memory_request)}, {"used_p99_bytes", used}},
       .memory_request = enough});
}

void AdviseLimit(std::size_t index, const MeteredVgpu& vgpu, double throttled, const AdviceRules& rules,
                 std::vector<Advice>& all) {
  if (vgpu.limit_pct >= 100 || throttled < rules.throttled) return;
  // What it ran and what it waited for its limit is what it wanted.
  const double enough = UpToFive(vgpu.limit_pct + 100 * throttled);
  all.push_back({.kind = Advice::Kind::kLimitTooSmall,
                 .vgpus = {index},
                 .reason = vgpu.name + "'s limit of " + PctWords(vgpu.limit_pct) + " kept it off the GPU for " +
                           PctWords(100 * throttled) + " of the time: it can use " + PctWords(enough),
                 .figures = {{"limit_pct", vgpu.limit_pct}, {"throttled_pct", 100 * throttled}},
                 .limit_pct = enough});
}

}  // namespace

std::vector<Advice> AdviseSizes(const MeteredFleet& fleet, const AdviceRules& rules) {
  std::vector<Advice> all;
  for (std::size_t i = 0; i < fleet.vgpus.size(); ++i) {
    const MeteredVgpu& vgpu = fleet.vgpus[i];
    std::vector<double> duty, memory;
    double throttled = 0;
    for (const UsedSample& used : vgpu.samples) {
      if (!used.there) continue;
      duty.push_back(used.duty);
      memory.push_back(static_cast<double>(used.memory));
      throttled += used.throttled;
    }
    if (duty.empty() || duty.size() < rules.least_samples) continue;
    throttled /= static_cast<double>(duty.size());
    // What its limit held back would be used with a larger request, too.
    if (throttled < rules.throttled) AdviseRequest(i, vgpu, duty, rules, all);
    AdviseMemory(i, vgpu, memory, rules, all);
    AdviseLimit(i, vgpu, throttled, rules, all);
  }
  return all;
}

}  // namespace tessera::sched
