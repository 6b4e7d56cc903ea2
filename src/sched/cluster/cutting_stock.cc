#include "sched/cluster/cutting_stock.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace tessera::sched {
namespace {

constexpr double kTolerance = 1e-9;
constexpr int kMostPivots = 1000;  // dozens of sizes need about as many

// The best cuts of each length at some prices: a knapsack problem for each.
class BestCuts {
 public:
  BestCuts(std::int32_t length, const std::vector<Pieces>& pieces, const std::vector<double>& prices)
      : pieces_(pieces), worth_(static_cast<std::size_t>(length) + 1), last_(worth_.size(), kNothing) {
    for (std::size_t at = 1; at < worth_.size(); ++at) {
      worth_[at] = worth_[at - 1];
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const auto size = static_cast<std::size_t>(pieces[i].size);
        if (size > at || worth_[at - size] + prices[i] <= worth_[at] + kTolerance) continue;
        worth_[at] = worth_[at - size] + prices[i];
        last_[at] = i;
      }
    }
  }

  const std::vector<double>& worth() const { return worth_; }

  // How many pieces of each size the best cut of a bar has.
  std::vector<double> OfBar() const {
    std::vector<double> counts(pieces_.size());
    for (std::size_t at = worth_.size() - 1; at > 0;) {
      if (last_[at] == kNothing) {
        --at;
        continue;
      }
      counts[last_[at]] += 1;
      at -= static_cast<std::size_t>(pieces_[last_[at]].size);
    }
    return counts;
  }

 private:
  static constexpr std::size_t kNothing = std::numeric_limits<std::size_t>::max();

  const std::vector<Pieces>& pieces_;
  std::vector<double> worth_;
  std::vector<std::size_t> last_;  // the last piece of the best cut; kNothing: it is that of one less
};

// Ways to cut a bar, as many as there are sizes, and how many bars are cut in each way so that there are enough pieces.
class CutBasis {
 public:
  // Each way has pieces of one size.
  CutBasis(std::int32_t length, const std::vector<Pieces>& pieces)
      : inverse_(pieces.size(), std::vector<double>(pieces.size())), bars_(pieces.size()) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::int32_t whole = length / pieces[i].size;
      const auto of_bar = static_cast<double>(whole);
      inverse_[i][i] = 1 / of_bar;
      bars_[i] = pieces[i].count / of_bar;
    }
  }

  double Bars() const {
    double all = 0;
    for (const double bars : bars_) all += bars;
    return all;
  }

  std::vector<double> Prices() const {
    std::vector<double> prices(bars_.size());
    for (const auto& row : inverse_) {
      for (std::size_t i = 0; i < row.size(); ++i) prices[i] += row[i];
    }
    for (double& price : prices) price = std::max(price, 0.0);
    return prices;
  }

  // Takes a new way to cut a bar instead of one of those. False: it cannot.
  bool Enter(const std::vector<double>& way) {
    std::vector<double> change(bars_.size());
    std::size_t leaves = bars_.size();
    double bars = 0;
    for (std::size_t row = 0; row < bars_.size(); ++row) {
      for (std::size_t i = 0; i < way.size(); ++i) change[row] += inverse_[row][i] * way[i];
      if (change[row] <= kTolerance) continue;
      if (leaves < bars_.size() && bars_[row] / change[row] >= bars) continue;
      leaves = row;
      bars = bars_[row] / change[row];
    }
    if (leaves == bars_.size()) return false;
    for (double& value : inverse_[leaves]) value /= change[leaves];
    for (std::size_t row = 0; row < bars_.size(); ++row) {
      if (row == leaves || change[row] == 0) continue;
      bars_[row] = std::max(bars_[row] - change[row] * bars, 0.0);
      for (std::size_t i = 0; i < way.size(); ++i) inverse_[row][i] -= change[row] * inverse_[leaves][i];
    }
    bars_[leaves] = bars;
    return true;
  }

 private:
  std::vector<std::vector<double>> inverse_;
  std::vector<double> bars_;
};

}  // namespace

Cutting CutBars(std::int32_t length, const std::vector<Pieces>& pieces) {
  CutBasis basis(length, pieces);
  for (int pivot = 0;; ++pivot) {
    std::vector<double> prices = basis.Prices();
    const BestCuts best(length, pieces, prices);
    std::vector<double> worth = best.worth();
    const double bar = worth.back();
    if (bar > 1 + kTolerance && pivot < kMostPivots && basis.Enter(best.OfBar())) continue;
    // If there are better ways still: prices at which there are none.
    const double excess = std::max(bar, 1.0);
    for (double& price : prices) price /= excess;
    for (double& each : worth) each /= excess;
    return {basis.Bars(), std::move(prices), std::move(worth)};
  }
}

}  // namespace tessera::sched
