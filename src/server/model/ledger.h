#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/result.h"

namespace tessera::server {

using VgpuId = std::uint32_t;  // unique over all GPUs and over the daemon's life

// A vGPU's terms for the memory of its GPU, bytes.
struct MemoryTerms {
  std::uint64_t request = 0;           // memory.request: a promise. It is lent while it is not used, and taken back
  std::optional<std::uint64_t> limit;  // memory.limit: what may lie on the GPU; none: all of it
  std::optional<std::uint64_t>
      max;  // memory.max: what may be allocated, wherever it lies; none: as much as the GPU has
  std::optional<std::uint64_t> swap;  // memory.swap.max: what may lie in host memory
};

// The memory ledger of one GPU: the promises to vGPUs and the memory that they hold. Figures only; bytes.
//
// A vGPU may always hold up to its request; beyond that, memory that is neither promised nor held. Where memory is
// swapped that is memory of the GPU and the host together.
class Ledger {
 public:
  // `reserve` is kept back from everybody. `swap`: bytes of one vGPU that may lie in host memory instead; then what is
  // held is what is allocated, wherever it lies, and a promise is of what may lie on the GPU. `swap_of_all`: of all
  // together, where that is another figure.
  Ledger(std::uint32_t gpu, std::uint64_t capacity, std::uint64_t reserve, std::uint64_t swap = 0,
         std::optional<std::uint64_t> swap_of_all = {});

  // Adds the vGPU, or changes its terms. ENOSPC when a request cannot be promised, with the figures; then nothing
  // changes. A limit below what is held is allowed: without swap the vGPU gets no more until it holds less than that.
  Result<void> Set(VgpuId id, const MemoryTerms& terms);
  void Close(VgpuId id);

  // Takes `bytes` for the vGPU if it may have them.
  [[nodiscard]] bool Charge(VgpuId id, std::uint64_t bytes);
  // Takes them even if it may not: they are in use already.
  void ChargeAnyway(VgpuId id, std::uint64_t bytes);
  void GiveBack(VgpuId id, std::uint64_t bytes);
  // Host memory that would hold nothing if all memory of the vGPU were out (sched/residency/bytes.h). It is no memory
  // that the vGPU holds, but there is so much less place for all. What its terms keep out of host memory counts not.
  void SetBlank(VgpuId id, std::uint64_t bytes);
  // Whether all that is promised and held has a place, and so has what this vGPU holds beyond its limit.
  bool HasPlace(VgpuId id) const;

  std::uint64_t Max(VgpuId id) const;        // what it may hold in all
  std::uint64_t Held(VgpuId id) const;       // what it holds
  std::uint64_t Available(VgpuId id) const;  // what it could charge now

  std::uint64_t Capacity() const { return capacity_; }
  std::uint64_t CapacityWithSwap() const { return capacity_ + swap_of_all_; }
  std::uint64_t Reserve() const { return reserve_; }
  std::uint64_t PlaceForAll() const;  // for all that vGPUs were promised or hold, host memory included
  std::uint64_t Promised() const { return promised_; }  // sum of the requests
  std::uint64_t Held() const { return held_; }
  // What the GPU has beside that which each vGPU holds, was promised or is limited to, whichever is most. May be less
  // than nothing: limits are not promises.
  std::int64_t Spare() const;
  std::uint64_t Unclaimed() const;  // neither promised nor held; with swap, of that and the GPU together

 private:
  struct Account {
    MemoryTerms terms;
    std::uint64_t held = 0;
    std::uint64_t blank = 0;
    std::uint64_t Claim() const { return std::max(terms.request, held); }
  };
  Result<void> Admit(const Account& account, const MemoryTerms& terms) const;
  void SetHeld(Account& account, std::uint64_t held);
  std::uint64_t OnGpu(const Account& account) const;
  std::uint64_t PlaceFor(const Account& account) const;

  const std::uint32_t gpu_;
  const std::uint64_t capacity_;
  const std::uint64_t reserve_;
  const std::uint64_t swap_, swap_of_all_;
  std::unordered_map<VgpuId, Account> accounts_;
  std::uint64_t promised_ = 0;  // sums over accounts_
  std::uint64_t held_ = 0;
  std::uint64_t claimed_ = 0;
  std::uint64_t blank_ = 0;
};

}  // namespace tessera::server
