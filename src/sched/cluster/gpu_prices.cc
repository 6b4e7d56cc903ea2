#include "sched/cluster/gpu_prices.h"

#include <algorithm>
#include <map>

#include "sched/cluster/cutting_stock.h"

namespace tessera::sched {

GpuPrices::GpuPrices(const std::vector<Demand>& pods) {
  std::map<std::int32_t, double> parts;
  for (const Demand& demand : pods) {
    if (demand.IsPart()) {
      parts[demand.gpu_milli] += 1;
    } else {
      gpus_ += demand.gpus;
    }
  }
  std::vector<Pieces> pieces;
  for (const auto& [size, count] : parts) pieces.push_back({size, count});
  const Cutting cutting = CutBars(kGpuMilli, pieces);
  gpus_ += cutting.bars;
  std::ranges::copy(cutting.worth, of_room_.begin());
  of_room_.back() = 1;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    of_demand_[static_cast<std::size_t>(pieces[i].size)] = cutting.prices[i];
}

double GpuPrices::OfDemand(const Demand& demand) const {
  return demand.IsPart() ? of_demand_[static_cast<std::size_t>(demand.gpu_milli)] : demand.gpus;
}

}  // namespace tessera::sched
