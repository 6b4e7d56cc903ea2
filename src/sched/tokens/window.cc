#include "sched/tokens/window.h"

#include <algorithm>

namespace tessera::sched {

void UsageWindow::Add(Nanos from, Nanos to, double busy) {
  if (to <= from) return;
  while (!spans_.empty() && spans_.front().to <= to - length_) spans_.pop_front();
  if (!spans_.empty() && from - spans_.back().from < length_ / 64) {
    spans_.back().to = to;
    spans_.back().busy += busy;
  } else {
    spans_.push_back({from, to, busy});
  }
}

double UsageWindow::Used(Nanos now) const {
  double used = 0;
  for (auto span = spans_.rbegin(); span != spans_.rend(); ++span) {
    const Nanos inside = span->to - std::max(span->from, now - length_);
    if (inside <= 0) break;
    used += static_cast<double>(inside) * span->Density();
  }
  return used;
}

double UsageWindow::Room(Nanos now, double ceiling) const {
  double left = ceiling - Used(now);
  if (left <= 0) return 0;
  // The run consumes `left` at the pace by which it outruns what leaves the window behind it: fully in the gaps of the
  // old use, by 1 - density in its spans.
  Nanos edge = now - length_;
  for (const Span& span : spans_) {
    if (span.to <= edge) continue;
    const Nanos gap = std::max<Nanos>(0, span.from - edge);
    if (left <= static_cast<double>(gap)) break;
    left -= static_cast<double>(gap);
    edge += gap;
    const double pace = 1 - span.Density();
    const double length = static_cast<double>(span.to - edge);
    if (left < length * pace) return static_cast<double>(edge - (now - length_)) + left / pace;
    left -= length * pace;
    edge = span.to;
  }
  return static_cast<double>(edge - (now - length_)) + left;
}

Nanos UsageWindow::RoomAt(Nanos now, double run, double ceiling) const {
  // By the end of the run all but the newest `keep` of the old use must have left the window.
  double keep = ceiling - run;
  for (auto span = spans_.rbegin(); span != spans_.rend(); ++span) {
    if (span->busy > keep) {
      const Nanos edge = span->to - static_cast<Nanos>(keep / span->Density());
      return std::max(now, edge + length_ - static_cast<Nanos>(run));
    }
    keep -= span->busy;
  }
  return now;
}

}  // namespace tessera::sched
