#include "sched/steering/slices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::sched {

std::vector<double> DueParts(std::span<const Shares> shares, double lost) {
  std::vector<double> parts(shares.size());
  std::vector<bool> capped(shares.size());
  double left = 1;
  double weight = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    parts[i] = std::min(shares[i].request_pct / (1 - lost), shares[i].limit_pct) / 100;
    left -= parts[i];
    weight += shares[i].weight;
  }
  if (left < 0) {
    for (double& part : parts) part /= 1 - left;
    return parts;
  }
  // Like water that rises at a pace of `weight` in each vessel until one is full, and then in the others.
  while (weight > 0 && left > 0) {
    double rise = left / weight;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (!capped[i]) rise = std::min(rise, (shares[i].limit_pct / 100 - parts[i]) / shares[i].weight);
    }
    rise = std::max(0.0, rise);
    bool any = false;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (capped[i]) continue;
      parts[i] += rise * shares[i].weight;
      left -= rise * shares[i].weight;
      if (parts[i] < shares[i].limit_pct / 100 - 1e-9) continue;
      capped[i] = true;
      weight -= shares[i].weight;
      any = true;
    }
    if (!any) break;
  }
  return parts;
}

std::vector<Nanos> SlicesFor(std::span<const double> parts, const SliceBounds& bounds) {
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  const double round = static_cast<double>(bounds.mean) * static_cast<double>(parts.size());
  double least = INFINITY;
  double most = 0;
  for (const double part : parts) {
    least = std::min(least, part / sum * round);
    most = std::max(most, part / sum * round);
  }
  const double wanted = static_cast<double>(bounds.least) / std::max(least, 1.0);
  const double possible = static_cast<double>(std::min(bounds.most, kMostStretched)) / most;
  const double stretch = std::max(1.0, std::min(wanted, possible));
  std::vector<Nanos> slices;
  slices.reserve(parts.size());
  for (const double part : parts) {
    slices.push_back(std::clamp(static_cast<Nanos>(part / sum * round * stretch), bounds.least, bounds.most));
  }
  return slices;
}

}  // namespace tessera::sched
