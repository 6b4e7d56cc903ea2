#include "shim/memory/ledger.h"

#include <map>
#include <unordered_map>
#include <utility>

#include "base/fork_mutex.h"

namespace tessera::shim {
namespace {

constexpr std::uint64_t kPage = 2u << 20;
constexpr std::uint64_t kUnit = 512;

ForkMutex ledger_mutex;

std::unordered_map<std::uint64_t, Entry>& Entries() TESSERA_REQUIRES(ledger_mutex) {
  static auto* entries = new std::unordered_map<std::uint64_t, Entry>;  // outlives the program's own destructors
  return *entries;
}

}  // namespace

std::uint64_t ChargeOf(std::uint64_t bytes) {
  const std::uint64_t unit = bytes >= kPage ? kPage : kUnit;
  // A size so large that rounding would wrap stays as it is: no limit admits it.
  return bytes > UINT64_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

void Remember(std::uint64_t key, const Entry& entry) {
  Entry old;
  {
    const MutexLock lock(ledger_mutex);
    old = std::exchange(Entries()[key], entry);
  }
  GiveBack(old);
}

Entry Forget(std::uint64_t key) {
  const MutexLock lock(ledger_mutex);
  const auto node = Entries().extract(key);
  return node ? node.mapped() : Entry{};
}

void GiveBack(const Entry& entry) {
  if (entry.room) entry.room->GivePinned(entry.charge, entry.reason);
}

void ChangeReason(std::uint64_t key, wire::PinReason reason) {
  const MutexLock lock(ledger_mutex);
  const auto at = Entries().find(key);
  if (at == Entries().end() || !at->second.room) return;
  const wire::PinReason before = std::exchange(at->second.reason, reason);
  const auto charge = static_cast<std::int64_t>(at->second.charge);
  at->second.room->NotePinned(charge, reason);
  at->second.room->NotePinned(-charge, before);
}

void GiveBackOf(cuda::CUcontext context) {
  std::map<std::pair<RoomAccount*, wire::PinReason>, std::uint64_t> sums;
  {
    const MutexLock lock(ledger_mutex);
    std::erase_if(Entries(), [&](const auto& at) {
      if (at.second.context != context) return false;
      sums[{at.second.room, at.second.reason}] += at.second.charge;
      return true;
    });
  }
  for (const auto& [of, sum] : sums) {
    if (of.first) of.first->GivePinned(sum, of.second);
  }
}

}  // namespace tessera::shim
