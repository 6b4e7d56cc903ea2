// The result of the kernel `work`, without computing it step by step.
#pragma once

#include <cstdint>

namespace tessera::tenant {

// x → a·x + c modulo 2^32. Steps compose to a map of the same form, so n of them cost log n: the host can check any
// number of launches of any length, and a launch that is lost, doubled or cut short shows.
struct Map {
  std::uint32_t a = 1;
  std::uint32_t c = 0;
  constexpr std::uint32_t operator()(std::uint32_t x) const { return a * x + c; }
};

// First `first`, then `then`.
constexpr Map Compose(Map first, Map then) { return {then.a * first.a, then.a * first.c + then.c}; }

// The step of the kernel, `times` over.
constexpr Map Steps(std::uint64_t times) {
  Map result;
  for (Map step{1664525, 1013904223}; times != 0; times >>= 1) {
    if (times & 1) result = Compose(result, step);
    step = Compose(step, step);
  }
  return result;
}

}  // namespace tessera::tenant
