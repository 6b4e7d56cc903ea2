#include "shim/memory/pool_charges.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/gate/capture.h"
#include "shim/load/real.h"
#include "shim/memory/ledger.h"

namespace tessera::shim {

using namespace cuda;

namespace {

struct Pool {
  RoomAccount* room = nullptr;  // of the GPU of its first allocation, as long as anything is charged
  std::uint64_t used = 0;       // bytes, by allocations that live
  std::uint64_t charged = 0;    // bytes: the most of what is used, and reserved as the driver said last
  std::uint64_t refused = 0;    // bytes: a charge that memory.max did not allow, and that is not asked for again
};

ForkMutex charges_mutex;
std::atomic<bool> keeps{false};  // some pool has reserved more than is used

std::map<CUmemoryPool, Pool>& Pools() TESSERA_REQUIRES(charges_mutex) {
  static auto* pools = new std::map<CUmemoryPool, Pool>;  // outlives the program's own destructors
  return *pools;
}

std::unordered_map<CUdeviceptr, pool_charges::Piece>& Pieces() TESSERA_REQUIRES(charges_mutex) {
  static auto* pieces = new std::unordered_map<CUdeviceptr, pool_charges::Piece>;
  return *pieces;
}

// The name of a pool that has ended, of which the driver must not be asked: it would take that for an address. Odd, as
// no handle is.
CUmemoryPool NewName() {
  static std::atomic<std::uintptr_t> next{1};
  return reinterpret_cast<CUmemoryPool>(next.fetch_add(2));
}
bool IsName(CUmemoryPool pool) { return reinterpret_cast<std::uintptr_t>(pool) % 2 != 0; }

// 0 for a pool that is gone.
std::uint64_t ReservedBy(CUmemoryPool pool) {
  std::uint64_t reserved = 0;
  if (IsName(pool)) return 0;
  const RelaxedCapture relaxed;  // another thread's capture would forbid the question
  return pool && REAL_AS(cuMemPoolGetAttribute, CUmemoryPool, CUmemPool_attribute, void*)(
                     pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) == CUDA_SUCCESS
             ? reserved
             : 0;
}

// Charges what is reserved now. What the account refuses stays uncharged: the memory exists, and a measurement finds
// it.
void Review(CUmemoryPool pool) {
  const std::uint64_t reserved = ReservedBy(pool);
  RoomAccount* room = nullptr;
  std::uint64_t more = 0, less = 0;
  {
    const MutexLock lock(charges_mutex);
    const auto at = Pools().find(pool);
    if (at == Pools().end()) return;
    Pool& of = at->second;
    room = of.room;
    const std::uint64_t want = std::max(reserved, of.used);
    if (want > of.used) keeps = true;
    if (of.refused != 0 && want == of.refused) return;
    if (want > of.charged) more = want - of.charged;
    if (want < of.charged) less = of.charged - want;
    of.charged = want;
    of.refused = 0;
    if (want == 0) Pools().erase(at);
  }
  if (less > 0) room->GivePinned(less, wire::PinReason::kPool);
  if (more == 0 || room->TakePinned(more, wire::PinReason::kPool)) return;
  const MutexLock lock(charges_mutex);
  const auto at = Pools().find(pool);
  if (at == Pools().end()) return;
  at->second.refused = at->second.charged;
  at->second.charged -= std::min(at->second.charged, more);
}

// What is known of `pool` goes by `name` from now on. Returns `name`.
CUmemoryPool Rename(CUmemoryPool pool, CUmemoryPool name) {
  const MutexLock lock(charges_mutex);
  auto node = Pools().extract(pool);
  if (!node) return name;
  node.key() = name;
  Pools().insert(std::move(node));
  for (auto& [address, piece] : Pieces()) {
    if (piece.pool == pool) piece.pool = name;
  }
  return name;
}

}  // namespace

namespace pool_charges {

std::uint64_t ChargeFor(std::uint64_t bytes) { return ChargeOf(bytes); }

bool Take(RoomAccount& room, CUmemoryPool pool, std::uint64_t charge) {
  for (const bool again : {false, true}) {
    const std::uint64_t reserved = ReservedBy(pool);
    std::uint64_t more = 0;
    RoomAccount* its = nullptr;
    {
      const MutexLock lock(charges_mutex);
      Pool& of = Pools()[pool];
      if (!of.room) of.room = &room;
      its = of.room;
      of.used += charge;
      const std::uint64_t want = std::max(reserved, of.used);
      if (want > of.charged) more = want - of.charged;
      of.charged += more;
    }
    if (more == 0 || its->TakePinned(more, wire::PinReason::kPool)) return true;
    {
      const MutexLock lock(charges_mutex);
      Pool& of = Pools()[pool];
      of.used -= charge;
      of.charged -= std::min(of.charged, more);
    }
    if (!again) ReviewPools();
  }
  return false;
}

void Keep(CUmemoryPool pool, std::uint64_t charge, CUdeviceptr address) {
  {
    const MutexLock lock(charges_mutex);
    Pieces()[address] = {pool, charge};
  }
  Review(pool);
}

void Drop(CUmemoryPool pool, std::uint64_t charge) {
  {
    const MutexLock lock(charges_mutex);
    Pool& of = Pools()[pool];
    of.used -= std::min(of.used, charge);
  }
  Review(pool);
}

EndedPool::EndedPool(CUmemoryPool pool) : pool_(pool), name_(Rename(pool, NewName())) {}
EndedPool::~EndedPool() { Review(name_); }
void EndedPool::Undo() const { Rename(name_, pool_); }

Piece Forget(CUdeviceptr address) {
  const MutexLock lock(charges_mutex);
  const auto node = Pieces().extract(address);
  return node ? node.mapped() : Piece{};
}

}  // namespace pool_charges

CUmemoryPool CurrentPool() {
  CUdevice device = 0;
  CUmemoryPool pool = nullptr;
  if (REAL_AS(cuCtxGetDevice, CUdevice*)(&device) != CUDA_SUCCESS ||
      REAL_AS(cuDeviceGetMemPool, CUmemoryPool*, CUdevice)(&pool, device) != CUDA_SUCCESS)
    return nullptr;
  return pool;
}

void ReviewPools() {
  std::vector<CUmemoryPool> pools;
  {
    const MutexLock lock(charges_mutex);
    keeps = false;
    for (const auto& [pool, of] : Pools()) pools.push_back(pool);
  }
  for (const CUmemoryPool pool : pools) Review(pool);
}

void ReviewPoolsThatKeep() {
  if (keeps.load(std::memory_order_relaxed)) ReviewPools();
}

}  // namespace tessera::shim
