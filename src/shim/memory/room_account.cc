#include "shim/memory/room_account.h"

#include "shim/memory/credit.h"
#include "shim/process/say.h"
#include "shim/session/daemon_watch.h"
#include "shim/session/session.h"

namespace tessera::shim {
namespace {

// Room may come only after a turn and after another program's memory was moved. If it takes longer than this, something
// is wrong, and an error is better than a hang.
constexpr Nanos kLongestWait = 120 * kSecond;

}  // namespace

bool RoomAccount::TakePinned(std::uint64_t bytes) {
  if (!memory_.Take(bytes)) return false;
  pinned_ += bytes;  // before there is room for it: it must never look as if it could be moved
  if (Take(bytes)) {
    Report();
    return true;
  }
  pinned_ -= bytes;
  memory_.Give(bytes);
  return false;
}

void RoomAccount::GivePinned(std::uint64_t bytes) {
  pinned_ -= bytes;
  Report();
  Give(bytes);
  memory_.Give(bytes);
}

bool RoomAccount::Take(std::uint64_t bytes) {
  Nanos since = 0;
  for (;;) {
    const std::uint32_t bell = page_.Bell();
    {
      const MutexLock holding(page_.holding);
      // A daemon that counts no room now may be followed by one that does.
      if (!swaps_ || TakeCredit(page_->room_credit, bytes)) {
        held_ += bytes;
        return true;
      }
    }
    // First the program gives up memory that it does not use itself.
    if (empty_ > 0 && TrimHeap()) continue;
    const Nanos now = MonotonicNow();
    const bool first = since == 0;
    if (first) {
      since = now;
    } else if (now - since > kLongestWait) {
      Say("no room on the GPU for %llu MiB after %lld s: is another program's memory stuck? See 'tessera ps'",
          static_cast<unsigned long long>(bytes >> 20), static_cast<long long>(kLongestWait / kSecond));
      return false;
    }
    if (bool taken; Ask(bytes, first, now, &since, &taken)) return taken;
    page_.WaitForRing(bell, kReconnectEvery);
    DaemonWatch::Instance().Mind(MonotonicNow());
  }
}

// Asks the daemon for room. False: the caller is to wait, and to try again; else `taken` says whether it has the room.
bool RoomAccount::Ask(std::uint64_t bytes, bool first, Nanos now, Nanos* since, bool* taken) {
  const MutexLock holding(page_.holding);
  *taken = true;
  if (!swaps_) {
    held_ += bytes;
    return true;
  }
  wire::RoomGranted answer;
  wire::Header header;
  const bool asked = Session::Instance().Ask(wire::Make(wire::Room{.bytes = bytes}, page_.Gpu()), answer, header);
  // Without a daemon the GPU memory that is left is for the next mover, which needs some to make room. Once it is clear
  // that no daemon comes, the program may take it.
  const bool alone = !asked && page_.FollowsOwn();
  if (asked ? answer.bytes >= bytes : alone && page_->gate.load(std::memory_order_relaxed) == wire::GateOrder::kOpen) {
    held_ += bytes;
    return true;
  }
  if (asked && !answer.wait) {
    page_->oom_errors.fetch_add(1, std::memory_order_relaxed);
    *taken = false;
    return true;
  }
  if (asked && first) page_->room_waits.fetch_add(1, std::memory_order_relaxed);
  if (alone) *since = now;
  return false;
}

// Gives free memory that the heap keeps for later back at once. False: it kept none.
bool RoomAccount::TrimHeap() {
  pager::Heap* heap = heap_;
  if (!heap) return false;
  const std::uint64_t before = heap->Figures().resident;
  heap->Trim(kNever);
  return heap->Figures().resident < before;
}

void RoomAccount::Give(std::uint64_t bytes) {
  const MutexLock holding(page_.holding);
  held_ -= bytes;
  if (swaps_) page_->room_credit.fetch_add(static_cast<std::int64_t>(bytes));
}

bool RoomAccount::Recall() {
  if (!swaps_) return false;
  wire::RoomGranted answer;
  wire::Header header;
  const bool asked = Session::Instance().Ask(wire::Make(wire::Room{.bytes = 0}, page_.Gpu()), answer, header);
  DaemonWatch::Instance().Mind(MonotonicNow());
  return !asked || answer.wait;
}

void RoomAccount::Attached(bool swaps) {
  swaps_ = swaps;
  const MutexLock lock(reporting_);
  moved_out_before_ = moved_out_;
  moved_in_before_ = moved_in_;
}

void RoomAccount::Holds(const pager::HeapFigures& figures) {
  moved_out_ = figures.moved_out;
  moved_in_ = figures.moved_in;
  heap_pinned_ = figures.pinned;
  empty_ = figures.empty;
  host_.Report(figures.swapped);
  unsafe_ = figures.unsafe;
  recalled_ = figures.recalled;
  Report();
}

// wire::Page asks for this order of the stores: moved_out, swapped, moved_in.
void RoomAccount::Report() {
  const MutexLock lock(reporting_);
  wire::Page* page = page_.Get();
  page->pinned.store(pinned_ + heap_pinned_, std::memory_order_relaxed);
  page->empty.store(empty_, std::memory_order_relaxed);
  page->recalled.store(recalled_, std::memory_order_relaxed);
  page->moved_out.store(moved_out_ - moved_out_before_, std::memory_order_relaxed);
  page->swapped.store(host_.Bytes(), std::memory_order_release);
  page->moved_in.store(moved_in_ - moved_in_before_, std::memory_order_release);
  page->guard.unsafe = unsafe_.load();
}

void RoomAccount::ReportHot(Nanos now) {
  if (now < next_hot_) return;
  next_hot_ = now + pager::UseHistory::kInterval / 2;
  pager::Heap* heap = heap_;
  page_->hot_out.store(heap && host_.Any() ? heap->Heat().HotOut(now) : 0, std::memory_order_relaxed);
}

}  // namespace tessera::shim
