#include "cli/top/model/top_history.h"

#include <algorithm>

namespace tessera::cli::top {

void History::Add(Nanos at, double value) {
  values_.push_back({at, value});
  // Keeps one older value, which the first piece repeats.
  while (values_.size() > 1 && values_[1].at + kLength < at) values_.pop_front();
}

std::vector<std::optional<double>> History::Pieces(Nanos now, int pieces) const {
  std::vector<std::optional<double>> means(std::max(pieces, 0));
  if (means.empty()) return means;
  const Nanos length = kLength / pieces;
  const Nanos newest = now / length;
  std::optional<double> before;
  auto value = values_.begin();
  for (int i = 0; i < pieces; ++i) {
    const Nanos end = (newest - (pieces - 1 - i) + 1) * length;
    const Nanos begin = end - length;
    double sum = 0;
    int count = 0;
    for (; value != values_.end() && value->at < end; ++value) {
      if (value->at >= begin) {
        sum += value->value;
        ++count;
      } else {
        before = value->value;
      }
    }
    if (count > 0) before = sum / count;
    means[i] = before;
  }
  return means;
}

}  // namespace tessera::cli::top
