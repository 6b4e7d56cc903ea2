#pragma once

#include <algorithm>

#include "base/clock.h"

namespace tessera::sched {

// Budget of GPU time that is earned at a fixed rate and spent as time is billed: what a limit still permits, or what a
// request is still owed. A negative balance is debt and is paid back at the same rate, so the long-run share equals the
// rate whatever a single run does. Nanoseconds are doubles here because rates are fractions.
class Allowance {
 public:
  // `rate` of the GPU's time in [0, 1]. Starts with one window's worth.
  Allowance(double rate, Nanos window, Nanos min_slice)
      : rate_(rate),
        min_slice_(static_cast<double>(min_slice)),
        quota_(rate > 0 ? std::max(rate * static_cast<double>(window), min_slice_) : 0),
        balance_(quota_) {}

  double rate() const { return rate_; }
  double balance() const { return balance_; }
  // The sum that one window earns, but at least a slice: a tiny rate saves up over several windows.
  double quota() const { return quota_; }
  double Fraction() const { return balance_ / quota_; }  // needs a rate > 0
  void SetBalance(double balance) { balance_ = balance; }

  // `elapsed` went by, of which `cost` was used. The balance does not grow beyond `cap`.
  void Pass(double elapsed, double cost, double cap) { balance_ = std::min(balance_ + rate_ * elapsed - cost, cap); }

  // The longest run that the balance pays for; it goes on earning during the run.
  double Lasts() const { return std::max(0.0, balance_) / std::max(1 - rate_, 1e-6); }

  // When the balance will pay for `run`, if nothing is spent until then. Needs rate > 0.
  Nanos WhenLasts(Nanos now, double run) const {
    constexpr double kForever = 1e18;  // 30 years; keeps tiny rates from overflowing
    return now + static_cast<Nanos>(std::min(std::max(0.0, run * (1 - rate_) - balance_) / rate_, kForever));
  }

  // A balance below the minimum slice is not handed out. It is saved until it is worth a switch again: half a window's
  // earnings.
  double Worthwhile() const { return std::max(quota_ / 2, min_slice_); }
  bool ready() const { return ready_; }
  void Refresh(double lasts) {
    constexpr double kRounding = 1e3;
    if (lasts < min_slice_ - kRounding) ready_ = false;
    if (lasts >= Worthwhile() - kRounding) ready_ = true;
  }

 private:
  double rate_;
  double min_slice_;
  double quota_;
  double balance_;
  bool ready_ = true;
};

}  // namespace tessera::sched
