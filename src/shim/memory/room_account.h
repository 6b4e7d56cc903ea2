// Room on the GPU: the right to have memory there, which is not what memory.max counts once memory can be swapped.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/fork_mutex.h"
#include "pager/heap/heap.h"
#include "shim/gate/host_memory.h"
#include "shim/memory/memory_account.h"
#include "shim/session/followed_page.h"
#include "shim/session/pinned_bytes.h"

namespace tessera::shim {

// The account of the room that this process has taken on one GPU, and what its page says of where its memory lies. Any
// thread.
class RoomAccount : public pager::Room {
 public:
  RoomAccount(FollowedPage& page, MemoryAccount& memory, HostMemory& host)
      : page_(page), memory_(memory), host_(host) {}
  RoomAccount(const RoomAccount&) = delete;

  // Room for what the heap makes. Take waits while the daemon makes some. False: there will be none.
  bool Take(std::uint64_t bytes) override;
  void Give(std::uint64_t bytes) override;
  // The heap reports where its memory lies now.
  void Holds(const pager::HeapFigures& figures) override;
  bool Released() const override { return page_->guard.released != 0; }

  // Memory and room for a context, as MemoryAccount::AddContext, which waits while the daemon makes room.
  // MemoryAccount::DropContext gives them back.
  bool TakeContext();
  // Memory and room for what cannot be moved, for the reason that the page tells the daemon. False: it would pass
  // memory.max, or there will be no room. GivePinned gives back what was taken, or changed, for the same reason.
  bool TakePinned(std::uint64_t bytes, wire::PinReason reason);
  void GivePinned(std::uint64_t bytes, wire::PinReason reason);
  // As much of that as the vGPU can have, in halves: `bytes`, a part of them, or 0. Waits as TakePinned does.
  std::uint64_t TakePinnedAtMost(std::uint64_t bytes, wire::PinReason reason);
  // So many bytes more cannot be moved, of what was taken or is about to be; or fewer, if negative. Where only the
  // reason changes, the new one is noted first.
  void NotePinned(std::int64_t bytes, wire::PinReason reason);

  // Asks the daemon to bring back memory that is pinned and lies in host memory. Ask again every kReconnectEvery until
  // it is back. False: the GPU has no place for it.
  bool Recall();

  // The heap whose memory this is. None where memory is the driver's own.
  void SetHeap(pager::Heap* heap) { heap_ = heap; }
  // Reports how much memory is used and lies on the host, and how much of that is used so much more than memory on the
  // GPU that the two should change places. At most twice an interval of use. Only the pacer's thread calls it.
  void ReportUse(Nanos now);

  // Room that this process holds, for a new daemon. Moves have changed it since it was taken.
  std::uint64_t Held() const TESSERA_REQUIRES(page_.holding) { return held_ + moved_in_ - moved_out_; }
  // Bytes that kernels must not touch before a mover has been at them.
  std::uint64_t Unsafe() const { return unsafe_; }
  bool Swaps() const { return swaps_; }
  // Whether holes in chunks become room when an allocation needs it.
  bool Squeezes() const { return swaps_ && page_->squeezes.load(std::memory_order_relaxed) != 0; }
  const FollowedPage& Page() const { return page_; }
  // A new daemon is followed from now on; `swaps`: it counts room. Nothing is moved meanwhile.
  void Attached(bool swaps) TESSERA_REQUIRES(page_.holding);
  // Writes to the page how many bytes are pinned, empty, swapped and so on.
  void Report();

 private:
  bool TakeRoom(std::uint64_t bytes, bool pins);
  bool Ask(std::uint64_t bytes, bool pins, bool first, bool* taken) TESSERA_EXCLUDES(page_.holding);
  void Wait(std::uint32_t bell, Nanos since, Nanos* warned_at);
  bool TrimHeap();

  FollowedPage& page_;
  MemoryAccount& memory_;
  HostMemory& host_;
  std::atomic<pager::Heap*> heap_{nullptr};

  std::atomic<bool> swaps_{false};
  std::uint64_t held_ TESSERA_GUARDED_BY(page_.holding) = 0;  // bytes, without what moves changed
  PinnedBytes pinned_;                                        // of it

  // As the heap said last, bytes.
  std::atomic<std::uint64_t> empty_{0}, unsafe_{0}, recalled_{0}, moved_out_{0}, moved_in_{0};
  std::atomic<std::uint64_t> holes_{0}, holed_{0}, squeezed_{0}, holes_out_{0}, stranded_{0}, blank_{0}, host_held_{0};

  ForkMutex reporting_;  // so that the last report is the newest one; taken after every other mutex but Session's
  std::uint64_t moved_out_before_ TESSERA_GUARDED_BY(reporting_) = 0;  // when it attached
  std::uint64_t moved_in_before_ TESSERA_GUARDED_BY(reporting_) = 0;

  Nanos next_use_ = 0;  // when the pacer reports next; only it reads this
};

}  // namespace tessera::shim
