#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pager/chunks/heap_figures.h"
#include "wire/page.h"

namespace tessera::shim {

// The bytes of this process on one GPU that cannot be moved, by the reason: those that the driver allocated for it, and
// those in chunks of its heap. Any thread.
class PinnedBytes {
 public:
  void Add(wire::PinReason reason, std::uint64_t bytes) { Of(reason) += bytes; }
  void Remove(wire::PinReason reason, std::uint64_t bytes) { Of(reason) -= bytes; }
  // As the heap says now. One thread at a time calls it.
  void Holds(const pager::HeapFigures& figures) {
    exported_ = figures.exported;
    registered_ = figures.registered;
    small_ = figures.pinned - figures.exported - figures.registered;
  }

  // Writes the sums to the page, all but wire::PinReason::kGraph. One thread at a time calls it.
  void Write(wire::Page& page) const;

 private:
  std::atomic<std::uint64_t>& Of(wire::PinReason reason) { return driver_[static_cast<std::size_t>(reason)]; }

  std::array<std::atomic<std::uint64_t>, wire::kPinReasons> driver_{};
  std::atomic<std::uint64_t> small_{0}, exported_{0}, registered_{0};  // in chunks of the heap
};

inline void PinnedBytes::Write(wire::Page& page) const {
  std::array<std::uint64_t, wire::kPinReasons> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = driver_[i];
  const auto of = [&bytes](wire::PinReason reason) -> std::uint64_t& {
    return bytes[static_cast<std::size_t>(reason)];
  };
  of(wire::PinReason::kSmall) += small_;
  of(wire::PinReason::kExported) += exported_;
  of(wire::PinReason::kRegistered) += registered_;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == static_cast<std::size_t>(wire::PinReason::kGraph)) continue;
    sum += bytes[i];
    page.pinned_by[i].store(bytes[i], std::memory_order_relaxed);
  }
  page.pinned.store(sum, std::memory_order_relaxed);
}

}  // namespace tessera::shim
