#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/clock.h"

namespace tessera::server {

// How much of the last second a vGPU was busy, from samples of its busy time that are taken whenever something happens:
// no timer is needed, and between two samples the time was spent evenly.
class BusyHistory {
 public:
  // Whether a sample at `now` would tell something new. Times do not go backwards.
  bool Due(Nanos now) const { return count_ == 0 || now - At(0).time >= kSpacing; }

  // `busy` is a total that only grows.
  void Note(Nanos now, Nanos busy) {
    if (!Due(now)) return;
    newest_ = (newest_ + 1) % samples_.size();
    samples_[newest_] = {now, busy};
    if (count_ < samples_.size()) ++count_;
  }

  // Percent of the second before `now`, at which the total is `busy`; of the time since the first sample if that is
  // less.
  double Percent(Nanos now, Nanos busy) const {
    const Nanos from = now - kSecond;
    Sample later{now, busy};
    for (std::size_t age = 0; age < count_; ++age) {
      const Sample sample = At(age);
      if (sample.time <= from) {
        const double part = static_cast<double>(from - sample.time) / static_cast<double>(later.time - sample.time);
        const double before = sample.busy + part * static_cast<double>(later.busy - sample.busy);
        return Share(busy - before, kSecond);
      }
      later = sample;
    }
    return Share(busy - later.busy, now - later.time);
  }

 private:
  static constexpr Nanos kSpacing = 50 * kMillisecond;
  struct Sample {
    Nanos time = 0;
    Nanos busy = 0;
  };
  const Sample& At(std::size_t age) const { return samples_[(newest_ + samples_.size() - age) % samples_.size()]; }
  static double Share(double busy, Nanos span) {
    return span <= 0 ? 0 : std::min(100.0, std::max(0.0, 100.0 * busy / static_cast<double>(span)));
  }

  std::array<Sample, 32> samples_{};  // more than a second's worth
  std::size_t newest_ = 0;
  std::size_t count_ = 0;
};

}  // namespace tessera::server
