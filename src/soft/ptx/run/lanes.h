// How instructions see the lanes of a warp.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "soft/ptx/run/warp.h"

namespace tessera::soft::ptx {

inline constexpr LaneMask kAllLanes = ~LaneMask{0};

template <typename Body>
inline void ForLanes(LaneMask lanes, Body&& body) {
  if (lanes == kAllLanes) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) body(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) body(static_cast<unsigned>(std::countr_zero(lanes)));
  }
}

template <typename T>
inline T Get(Slot slot) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(slot));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(slot);
  } else {
    return static_cast<T>(slot);
  }
}

template <typename T>
inline Slot Put(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else {
    return static_cast<Slot>(value);  // extends the sign of a signed value
  }
}

// d = Function{}(a), (a, b), (a, b, c) in type T.
template <typename T, typename Function>
void Unary(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = Put<T>(Function{}(Get<T>(a[lane]))); });
}

template <typename T, typename Function>
void Binary(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = Put<T>(Function{}(Get<T>(a[lane]), Get<T>(b[lane]))); });
}

template <typename T, typename Function>
void Ternary(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Slot* c = warp.Source(in.operand[3]);
  ForLanes(lanes,
           [=](unsigned lane) { d[lane] = Put<T>(Function{}(Get<T>(a[lane]), Get<T>(b[lane]), Get<T>(c[lane]))); });
}

}  // namespace tessera::soft::ptx
