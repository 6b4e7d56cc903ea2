#include "shim/memory/room_account.h"

#include <algorithm>

#include "shim/memory/credit.h"
#include "shim/process/say.h"
#include "shim/session/daemon_watch.h"
#include "shim/session/session.h"

namespace tessera::shim {
namespace {

// Room may come only after the turns of others, and after their memory was moved. As long as the daemon says that it
// comes, the program waits; a user who waits for so long is told.
constexpr Nanos kLongWait = 120 * kSecond;

}  // namespace

bool RoomAccount::TakeContext() {
  const Nanos since = MonotonicNow();
  Nanos warned_at = since;
  for (bool first = true;; first = false) {
    const std::uint32_t bell = page_.Bell();
    const MemoryAccount::Answer answer = memory_.AddContext();
    if (answer != MemoryAccount::Answer::kWait) return answer == MemoryAccount::Answer::kYes;
    if (first) page_->room_waits.fetch_add(1, std::memory_order_relaxed);
    if (empty_ > 0 && TrimHeap()) continue;
    Wait(bell, since, &warned_at);
  }
}

bool RoomAccount::TakePinned(std::uint64_t bytes, wire::PinReason reason) {
  if (!memory_.Take(bytes)) return false;
  pinned_.Add(reason, bytes);  // before there is room for it: it must never look as if it could be moved
  if (TakeRoom(bytes, /*pins=*/true)) {
    Report();
    return true;
  }
  pinned_.Remove(reason, bytes);
  memory_.Give(bytes);
  memory_.NoteRefused();
  return false;
}

std::uint64_t RoomAccount::TakePinnedAtMost(std::uint64_t bytes, wire::PinReason reason) {
  constexpr std::uint64_t kPage = 2u << 20;
  std::uint64_t part = std::min(bytes, memory_.Free());
  if (part < bytes) part = part / kPage * kPage;
  while (part > 0 && !TakePinned(part, reason)) part = part / 2 / kPage * kPage;
  return part;
}

void RoomAccount::GivePinned(std::uint64_t bytes, wire::PinReason reason) {
  pinned_.Remove(reason, bytes);
  Report();
  Give(bytes);
  memory_.Give(bytes);
}

void RoomAccount::NotePinned(std::int64_t bytes, wire::PinReason reason) {
  pinned_.Add(reason, static_cast<std::uint64_t>(bytes));  // modulo 2^64
  Report();
}

bool RoomAccount::Take(std::uint64_t bytes) { return TakeRoom(bytes, /*pins=*/false); }

bool RoomAccount::TakeRoom(std::uint64_t bytes, bool pins) {
  const Nanos since = MonotonicNow();
  Nanos warned_at = since;
  for (bool first = true;; first = false) {
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
    if (bool taken; Ask(bytes, pins, first, &taken)) return taken;
    Wait(bell, since, &warned_at);
  }
}

// Until the daemon rings, or it is time to ask again.
void RoomAccount::Wait(std::uint32_t bell, Nanos since, Nanos* warned_at) {
  page_.WaitForRing(bell, kReconnectEvery);
  const Nanos now = MonotonicNow();
  DaemonWatch::Instance().Mind(now);
  if (now - *warned_at < kLongWait) return;
  *warned_at = now;
  Say("this program has waited %lld s for room on the GPU; 'tessera gpus' and 'tessera ps' say who has it",
      static_cast<long long>((now - since) / kSecond));
}

// Asks the daemon for room. False: the caller is to wait, and to try again; else `taken` says whether it has the room.
bool RoomAccount::Ask(std::uint64_t bytes, bool pins, bool first, bool* taken) {
  const MutexLock holding(page_.holding);
  *taken = true;
  if (!swaps_) {
    held_ += bytes;
    return true;
  }
  if (page_.Removed()) {  // its memory has no place among others any more
    *taken = false;
    return true;
  }
  wire::RoomGranted answer;
  wire::Header header;
  const bool asked =
      Session::Instance().Ask(wire::Make(wire::Room{.bytes = bytes, .pins = pins}, page_.Gpu()), answer, header);
  // Without a daemon the GPU memory that is left is for the next mover, which needs some to make room. Once it is clear
  // that no daemon comes, the program may take it.
  const bool alone = !asked && page_.FollowsOwn();
  if (asked ? answer.bytes >= bytes : alone && page_->gate.load(std::memory_order_relaxed) == wire::GateOrder::kOpen) {
    held_ += bytes;
    return true;
  }
  if (asked && !answer.wait) {
    *taken = false;
    return true;
  }
  if (asked && first) page_->room_waits.fetch_add(1, std::memory_order_relaxed);
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
  return asked ? answer.wait : !page_.FollowsOwn();  // where no daemon comes, no mover does
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
  pinned_.Holds(figures);
  empty_ = figures.empty;
  host_.Report(figures.swapped);
  unsafe_ = figures.unsafe;
  recalled_ = figures.recalled;
  stranded_ = figures.stranded;
  blank_ = figures.blank;
  holes_ = figures.holes;
  holed_ = figures.holed;
  squeezed_ = figures.squeezed;
  holes_out_ = figures.holes_out;
  host_held_ = figures.held;
  Report();
}

// wire::Page asks for this order of the stores: moved_out, swapped, moved_in.
void RoomAccount::Report() {
  const MutexLock lock(reporting_);
  wire::Page* page = page_.Get();
  pinned_.Write(*page);
  page->empty.store(empty_, std::memory_order_relaxed);
  page->recalled.store(recalled_, std::memory_order_relaxed);
  page->holes.store(holes_, std::memory_order_relaxed);
  page->holed.store(holed_, std::memory_order_relaxed);
  page->squeezed.store(squeezed_, std::memory_order_relaxed);
  page->holes_out.store(holes_out_, std::memory_order_relaxed);
  page->blank.store(blank_, std::memory_order_relaxed);
  page->host_held.store(host_held_, std::memory_order_relaxed);
  page->moved_out.store(moved_out_ - moved_out_before_, std::memory_order_relaxed);
  page->swapped.store(host_.Bytes(), std::memory_order_release);
  page->stranded.store(stranded_, std::memory_order_release);
  page->moved_in.store(moved_in_ - moved_in_before_, std::memory_order_release);
  page->guard.unsafe = unsafe_.load();
}

void RoomAccount::ReportUse(Nanos now) {
  if (now < next_use_) return;
  next_use_ = now + pager::UseHistory::kInterval / 2;
  std::uint64_t hot = 0;
  pager::ChunkHeat::InUse used;
  pager::Heap* heap = heap_;
  if (heap && host_.Any()) {
    hot = heap->Heat().HotOut(now);
    used = heap->Heat().UsedLately();
  } else if (heap) {
    heap->Heat().ForgetSubmissions();
  }
  page_->hot_out.store(hot, std::memory_order_relaxed);
  page_->used.store(used.all, std::memory_order_relaxed);
  page_->used_out.store(used.out, std::memory_order_relaxed);
}

}  // namespace tessera::shim
