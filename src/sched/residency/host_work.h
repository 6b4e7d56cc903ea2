#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace tessera::sched {

// What a program does, and where the memory that it works on lies. Bytes.
struct HostUse {
  bool runs = false;           // it has work, and nothing stops it
  std::uint64_t out = 0;       // of its memory, in host memory
  std::uint64_t used = 0;      // of its memory, what it used lately, wherever that lies
  std::uint64_t used_out = 0;  // of `used` and `out`: what it used lately and lies in host memory
};

// When people are told that a program works on memory in host memory. A kernel reaches that over the bus, many times
// slower than memory of the GPU, so a small part of what a program uses makes all of it slow. Only time in which the
// program runs counts: one that stands still loses nothing by where its memory lies. Pure arithmetic; one object per
// program.
class HostWork {
 public:
  // One in so many bytes of what it uses is much.
  static constexpr std::uint64_t kPart = 20;
  // Its memory is back after it has run on the GPU alone for this part of the time after which people were told.
  static constexpr int kBackPart = 6;

  static constexpr bool IsMuch(const HostUse& use) { return use.used_out > 0 && use.used_out >= use.used / kPart; }

  // kBegan: it has run on host memory for long. kEnded, after kBegan only: it does so no more.
  enum class News { kNone, kBegan, kEnded };

  // What it does from `now` on. Times do not go backwards. `longest`: it may run on host memory for so long, in sum,
  // until that is news; 0: that never is.
  News Note(const HostUse& use, Nanos longest, Nanos now) {
    Advance(now);
    state_ = StateOf(use);
    if (state_ == State::kOn) {
      if (!since_) since_ = now;
      off_ = 0;
    }
    if (!since_) return News::kNone;
    if (!told_ && longest > 0 && on_ >= longest) {
      told_ = true;
      return News::kBegan;
    }
    if (state_ == State::kOn || off_ < longest / kBackPart) return News::kNone;
    since_.reset();
    on_ = off_ = 0;
    return std::exchange(told_, false) ? News::kEnded : News::kNone;
  }

  // The time in which it ran on host memory, over its life.
  Nanos TimeAt(Nanos now) const { return total_ + (state_ == State::kOn ? now - at_ : 0); }
  // How long it has run on host memory since it began, if people were told of it.
  std::optional<Nanos> ToldFor(Nanos now) const {
    return told_ ? std::optional(on_ + (state_ == State::kOn ? now - at_ : 0)) : std::nullopt;
  }
  // Since when, if people were told.
  std::optional<Nanos> Since() const { return told_ ? since_ : std::nullopt; }

 private:
  enum class State { kStands, kOn, kOff };  // it does not run; it runs on host memory; it has what it uses on the GPU

  static State StateOf(const HostUse& use) {
    if (use.out == 0) return State::kOff;
    if (!use.runs) return State::kStands;
    return IsMuch(use) ? State::kOn : State::kOff;
  }

  void Advance(Nanos now) {
    const Nanos span = now - at_;
    at_ = now;
    if (state_ == State::kOff && since_) off_ += span;
    if (state_ != State::kOn) return;
    on_ += span;
    total_ += span;
  }

  State state_ = State::kOff;
  Nanos at_ = 0;
  std::optional<Nanos> since_;  // the first time on host memory that has not ended since
  Nanos on_ = 0;                // since then
  Nanos off_ = 0;               // that it had what it used on the GPU, since it last ran on host memory
  Nanos total_ = 0;
  bool told_ = false;
};

}  // namespace tessera::sched
