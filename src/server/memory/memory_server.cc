#include "server/memory/memory_server.h"

#include <algorithm>
#include <utility>

#include "base/size.h"

namespace tessera::server {
namespace {

constexpr std::uint64_t kGranule = 2 * kMiB;  // of device memory: what the driver hands out at least
constexpr std::uint64_t kMostCredit = 16 * kMiB;

// Credit spares small allocations a message. It shrinks with what is left, so that it never is what others miss.
std::uint64_t CreditFor(std::uint64_t available) { return std::min(kMostCredit, available / 16 / kGranule * kGranule); }

// A process may keep a few helpings before it returns what it frees.
std::uint64_t CreditToKeep(std::uint64_t available) { return 4 * CreditFor(available); }

std::uint64_t RoundUp(std::uint64_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

}  // namespace

MemoryServer::MemoryServer(class Ledger ledger, std::uint64_t context_bytes)
    : ledger_(std::move(ledger)), first_context_bytes_(context_bytes), context_bytes_(context_bytes) {}

Result<void> MemoryServer::Set(VgpuId id, const MemoryTerms& terms) {
  if (auto set = ledger_.Set(id, terms); !set) return set;
  accounts_[id];
  Publish();
  return {};
}

void MemoryServer::Close(VgpuId id) {
  ledger_.Close(id);
  accounts_.erase(id);
  Publish();
}

void MemoryServer::Join(VgpuId id, MemoryUse& use, std::uint64_t bytes, std::uint32_t contexts) {
  use.vgpu = id;
  use.reserved = std::min(bytes, ledger_.CapacityWithSwap());
  use.contexts = std::min<std::uint32_t>(contexts, ledger_.Capacity() / std::max<std::uint64_t>(context_bytes_, 1));
  use.context_bytes = use.contexts * context_bytes_;
  accounts_.at(id).uses.push_back(&use);
  ledger_.ChargeAnyway(id, use.Charged());
  Grown(use);
}

void MemoryServer::Leave(MemoryUse& use) {
  std::erase(accounts_.at(use.vgpu).uses, &use);
  ledger_.GiveBack(use.vgpu, use.Charged());
  Publish();
}

std::uint64_t MemoryServer::Reserve(MemoryUse& use, std::uint64_t bytes, Nanos now) {
  if (!Charge(use.vgpu, bytes, now)) return 0;
  use.reserved += bytes;
  if (const std::uint64_t credit = CreditFor(ledger_.Available(use.vgpu));
      bytes <= credit && ledger_.Charge(use.vgpu, credit)) {
    use.reserved += credit;
    use.page->memory_credit.fetch_add(static_cast<std::int64_t>(credit), std::memory_order_relaxed);
  }
  Grown(use);
  return bytes;
}

void MemoryServer::Return(MemoryUse& use, std::uint64_t bytes) {
  use.page->memory_returned.fetch_add(bytes,
                                      std::memory_order_relaxed);  // as claimed: the program subtracts it from its sum
  bytes = std::min(bytes, use.reserved);
  use.reserved -= bytes;
  ledger_.GiveBack(use.vgpu, bytes);
  KeepCounted(use);
  Publish();
}

MemoryServer::BlankAnswer MemoryServer::HasPlaceForBlank(MemoryUse& use, Nanos now) {
  const auto has_place = [&](const MemoryUse* only_planned_by = nullptr) {
    ReadBlank(only_planned_by);
    return ledger_.HasPlace(use.vgpu);
  };
  const bool asks_again = std::exchange(use.asks_again, false);
  if (has_place()) return BlankAnswer::kYes;
  ReadWhatWaits(std::nullopt, now);
  TakeBackCredits(std::nullopt);
  if (has_place()) return BlankAnswer::kYes;
  use.asks_again = !asks_again && has_place(&use);
  ReadBlank();
  if (use.asks_again) return BlankAnswer::kAskAgain;
  ++accounts_.at(use.vgpu).oom_events;
  return BlankAnswer::kNo;
}

bool MemoryServer::HasPlaceForContext(const MemoryUse& use, Nanos now) {
  if (!Charge(use.vgpu, context_bytes_, now)) return false;
  ledger_.GiveBack(use.vgpu, context_bytes_);
  return true;
}

std::uint64_t MemoryServer::AddContext(MemoryUse& use, Nanos now) {
  const std::uint64_t price = context_bytes_;
  if (!Charge(use.vgpu, price, now)) return 0;
  ++use.contexts;
  use.context_bytes += price;
  Grown(use);
  return price;
}

void MemoryServer::DropContext(MemoryUse& use) {
  if (use.contexts == 0) return;
  const std::uint64_t price = use.context_bytes / use.contexts;
  --use.contexts;
  use.context_bytes -= price;
  ledger_.GiveBack(use.vgpu, price);
  KeepCounted(use);
  Publish();
}

bool MemoryServer::Count(MemoryUse& use, std::uint64_t bytes) {
  for (bool collected = false;; collected = true) {
    const std::uint64_t other = Beyond(use, bytes);
    if (other <= use.other || ledger_.Charge(use.vgpu, other - use.other)) break;
    if (collected) {
      ++accounts_.at(use.vgpu).oom_events;
      return false;
    }
    TakeBackCredits(WhoIsShort(use.vgpu, other - use.other));
  }
  SetCounted(use, bytes);
  return true;
}

void MemoryServer::CountAnyway(MemoryUse& use, std::uint64_t bytes) {
  if (const std::uint64_t other = Beyond(use, bytes); other > use.other)
    ledger_.ChargeAnyway(use.vgpu, other - use.other);
  SetCounted(use, bytes);
}

// Bytes that are counted of it beyond those that it is charged for by itself.
std::uint64_t MemoryServer::Beyond(const MemoryUse& use, std::uint64_t counted) {
  const std::uint64_t known = use.Known();
  return counted > known ? counted - known : 0;
}

// The caller has charged the increase.
void MemoryServer::SetCounted(MemoryUse& use, std::uint64_t bytes) {
  const std::uint64_t other = Beyond(use, bytes);
  if (other < use.other) ledger_.GiveBack(use.vgpu, use.other - other);
  use.other = other;
  use.counted = bytes;
  use.most_counted = std::max(use.most_counted, bytes);
  Grown(use);
}

// After a use says that it has less: what the kernel gate counts stays charged, whatever is said.
void MemoryServer::KeepCounted(MemoryUse& use) {
  const std::uint64_t other = Beyond(use, use.counted);
  if (other <= use.other) return;
  ledger_.ChargeAnyway(use.vgpu, other - use.other);
  use.other = other;
}

void MemoryServer::Reconcile(MemoryUse& use, std::uint64_t measured) {
  // A process that has made nothing but one context shows what a context costs here. The first estimate is the floor,
  // because a context may be measured while it grows; twice that the ceiling, because a process may hide memory from
  // us.
  if (use.contexts == 1 && use.reserved == 0 && measured > context_bytes_) {
    context_bytes_ = std::min(RoundUp(measured), 2 * first_context_bytes_);
  }
  use.measured = measured;
  std::uint64_t other = measured > use.most_charged ? measured - use.most_charged : 0;
  other = std::max(other, Beyond(use, use.counted));
  if (other == use.other) return;
  ledger_.GiveBack(use.vgpu, use.other);
  ledger_.ChargeAnyway(use.vgpu, other);
  use.other = other;
  Grown(use);
}

MemoryServer::Excess MemoryServer::ExcessOf(const MemoryUse& use) const {
  // The driver takes memory for contexts on its own account.
  const std::uint64_t granted = (use.counted != 0 ? use.most_counted : use.most_charged) + 2 * first_context_bytes_;
  const Figures figures = FiguresOf(use.vgpu);
  if (use.measured.value_or(0) <= granted || figures.current <= figures.max) return Excess::kNone;
  std::uint64_t granted_in_all = 0;
  for (const MemoryUse* each : accounts_.at(use.vgpu).uses)
    granted_in_all += std::max(each->counted, each->reserved + each->context_bytes);
  return granted_in_all > ledger_.Max(use.vgpu) ? Excess::kUnclear : Excess::kStolen;
}

MemoryServer::Figures MemoryServer::FiguresOf(VgpuId id) const {
  const Account& account = accounts_.at(id);
  Figures figures{.max = ledger_.Max(id), .available = ledger_.Available(id), .oom_events = account.oom_events};
  for (const MemoryUse* use : account.uses) figures.current += use->Current();
  figures.peak = std::max(account.peak, figures.current);
  return figures;
}

// Exact: it refuses memory only after it has read the messages that free memory, and taken back unused credit.
bool MemoryServer::Charge(VgpuId id, std::uint64_t bytes, Nanos now) {
  ReadBlank();
  if (ledger_.Charge(id, bytes)) return true;
  if (bytes <= ledger_.Max(id)) {
    const auto only = WhoIsShort(id, bytes);
    ReadWhatWaits(only, now);
    TakeBackCredits(only);
    if (ledger_.Charge(id, bytes)) return true;
  }
  ++accounts_.at(id).oom_events;
  return false;
}

void MemoryServer::Collect(VgpuId id, std::uint64_t bytes, Nanos now) {
  if (bytes > ledger_.Available(id) && bytes <= ledger_.Max(id)) ReadWhatWaits(WhoIsShort(id, bytes), now);
}

// Whose frees could make place for so much more of the vGPU: its own only, or everybody's (nullopt).
std::optional<VgpuId> MemoryServer::WhoIsShort(VgpuId id, std::uint64_t bytes) const {
  const std::uint64_t max = ledger_.Max(id), held = ledger_.Held(id);
  return held > max || bytes > max - held ? std::optional(id) : std::nullopt;
}

// Programs change it without a word. Of mappings that are being made only those of one program count, if it is named.
void MemoryServer::ReadBlank(const MemoryUse* only_planned_by) {
  for (const auto& [id, account] : accounts_) {
    std::uint64_t blank = 0;
    for (const MemoryUse* use : account.uses)
      blank += !only_planned_by || use == only_planned_by ? use->Blank() : use->BlankMade();
    ledger_.SetBlank(id, blank);
  }
}

void MemoryServer::ReadWhatWaits(std::optional<VgpuId> only, Nanos now) {
  if (!read_pending_ || collecting_) return;
  collecting_ = true;
  read_pending_(only, now);
  collecting_ = false;
}

void MemoryServer::TakeBackCredits(std::optional<VgpuId> only) {
  for (auto& [id, account] : accounts_) {
    if (only && *only != id) continue;
    for (MemoryUse* use : account.uses) {
      const std::int64_t taken = use->page->memory_credit.exchange(0, std::memory_order_relaxed);
      if (taken <= 0) continue;
      const std::uint64_t bytes = std::min(static_cast<std::uint64_t>(taken), use->reserved);
      use->reserved -= bytes;
      ledger_.GiveBack(id, bytes);
      KeepCounted(*use);
    }
    Publish();
  }
}

// Writes the view into all pages: what one vGPU holds is not there for the others.
void MemoryServer::Publish() {
  ReadBlank();
  for (const auto& [other, account] : accounts_) {
    const std::uint64_t max = ledger_.Max(other), available = ledger_.Available(other);
    for (const MemoryUse* use : account.uses) {
      use->page->memory_max.store(max, std::memory_order_relaxed);
      use->page->memory_available.store(available, std::memory_order_relaxed);
      use->page->memory_credit_keep.store(CreditToKeep(available), std::memory_order_relaxed);
    }
  }
}

// After a use has grown.
void MemoryServer::Grown(MemoryUse& use) {
  use.most_charged = std::max(use.most_charged, use.Known());
  Account& account = accounts_.at(use.vgpu);
  std::uint64_t current = 0;
  for (const MemoryUse* member : account.uses) current += member->Current();
  account.peak = std::max(account.peak, current);
  Publish();
}

}  // namespace tessera::server
