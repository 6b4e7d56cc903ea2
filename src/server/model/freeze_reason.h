#pragma once

#include <cstdint>
#include <vector>

namespace tessera::server {

// Why a process is frozen. Each reason stands for itself: the process runs when none is left. A value may hold several.
// The bits are part of traces (TraceKind::kFrozen).
enum class FreezeReason : std::uint8_t {
  kNone = 0,
  kOperator = 1,
  kPolicy = 2,
  kMove = 4,    // its memory is being moved
  kMemory = 8,  // it has memory that it must not have
};

constexpr FreezeReason operator|(FreezeReason a, FreezeReason b) {
  return static_cast<FreezeReason>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr FreezeReason operator&(FreezeReason a, FreezeReason b) {
  return static_cast<FreezeReason>(static_cast<std::uint8_t>(a) & static_cast<std::uint8_t>(b));
}
// Those of `a` that are not in `b`.
constexpr FreezeReason operator-(FreezeReason a, FreezeReason b) {
  return static_cast<FreezeReason>(static_cast<std::uint8_t>(a) & ~static_cast<std::uint8_t>(b));
}
constexpr FreezeReason& operator|=(FreezeReason& a, FreezeReason b) { return a = a | b; }
constexpr FreezeReason& operator-=(FreezeReason& a, FreezeReason b) { return a = a - b; }

constexpr bool Any(FreezeReason reasons) { return reasons != FreezeReason::kNone; }
constexpr bool Has(FreezeReason reasons, FreezeReason reason) { return Any(reasons & reason); }
constexpr FreezeReason If(bool holds, FreezeReason reason) { return holds ? reason : FreezeReason::kNone; }

// As the API names them.
inline std::vector<const char*> NamesOf(FreezeReason reasons) {
  std::vector<const char*> names;
  if (Has(reasons, FreezeReason::kOperator)) names.push_back("operator");
  if (Has(reasons, FreezeReason::kPolicy)) names.push_back("policy");
  if (Has(reasons, FreezeReason::kMove)) names.push_back("move");
  if (Has(reasons, FreezeReason::kMemory)) names.push_back("memory");
  return names;
}

}  // namespace tessera::server
