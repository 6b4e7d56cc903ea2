// How much a chunk was used lately, as far as submissions show.
#pragma once

#include <atomic>
#include <bit>
#include <compare>
#include <cstdint>

#include "base/clock.h"

namespace tessera::pager {

// How hot a chunk is: the more used, the hotter. In a block, a chunk that lies behind a named one has a quarter of its
// use: an argument names a pointer, and not how many bytes behind it are used.
struct Heat {
  std::uint32_t use = 0;   // 0 to 128, see UseHistory
  std::uint32_t last = 0;  // the interval of the last use; decides between chunks of equal use
  auto operator<=>(const Heat&) const = default;

  Heat Behind() const { return {use / 4, last}; }
};

// Whether it is worth the time to bring a chunk of heat `out` in, and one of heat `in` out for it. It is not if both
// are used equally often, however long ago the last use was: else the memory of a program that goes round through all
// of it would move all the time.
constexpr bool WorthExchanging(Heat out, Heat in) {
  constexpr std::uint32_t kMargin = 22;  // two uses, or one that goes on for some time
  return out.use >= 2 * in.use + kMargin;
}

// The intervals, out of the last 32, in which a chunk was used. How often it was used in one of them does not count: a
// chunk that was used a thousand times in a moment, and then no more, is not hot. The last 4, 8, 16 and 32 intervals
// have equal weight, so a chunk that comes into use takes the place of one that goes out of use after some seconds.
// Thread-safe without a lock; of two uses at the same instant one may be forgotten.
class UseHistory {
 public:
  static constexpr Nanos kInterval = 400 * kMillisecond;

  void Note(Nanos when) {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    const std::uint32_t interval = IntervalOf(when);
    const std::uint32_t bits = BitsAt(word, interval);
    if (Last(word) >= interval && (bits & 1)) return;
    word_.store(std::uint64_t{interval} << 32 | bits | 1, std::memory_order_relaxed);
  }

  Heat At(Nanos now) const {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    const std::uint32_t bits = BitsAt(word, IntervalOf(now));
    return {8 * Count(bits, 4) + 4 * Count(bits, 8) + 2 * Count(bits, 16) + Count(bits, 32), Last(word)};
  }

 private:
  static std::uint32_t IntervalOf(Nanos when) { return static_cast<std::uint32_t>(when / kInterval); }
  static constexpr std::uint32_t Count(std::uint32_t bits, int newest) {
    return static_cast<std::uint32_t>(std::popcount(bits & (~std::uint32_t{0} >> (32 - newest))));
  }
  static std::uint32_t Last(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
  // Bit n: used n intervals before this one.
  static std::uint32_t BitsAt(std::uint64_t word, std::uint32_t interval) {
    if (interval <= Last(word)) return static_cast<std::uint32_t>(word);
    const std::uint32_t passed = interval - Last(word);
    return passed < 32 ? static_cast<std::uint32_t>(word) << passed : 0;
  }

  std::atomic<std::uint64_t> word_ = 0;  // high half: the interval of the last use; low half: the bits as of then
};

}  // namespace tessera::pager
