// Room on the GPU: the right to have memory there, which is not what memory.max counts once memory can be swapped.
#include "shim/device/attachment.h"
#include "shim/gate/capture.h"
#include "shim/memory/operands.h"
#include "shim/memory/paging.h"
#include "shim/process/say.h"

namespace tessera::shim {
namespace {

bool TakeCredit(std::atomic<std::int64_t>& from, std::uint64_t bytes) {
  std::int64_t credit = from.load(std::memory_order_relaxed);
  while (credit >= 0 && static_cast<std::uint64_t>(credit) >= bytes) {
    if (from.compare_exchange_weak(credit, credit - static_cast<std::int64_t>(bytes))) return true;
  }
  return false;
}

// Making room may mean to wait for a turn, and for another program's memory to be moved. Longer than this, something is
// wrong, and an error is better than to hang.
constexpr Nanos kLongestWait = 120 * kSecond;

}  // namespace

bool Attachment::TakePinned(std::uint64_t bytes) {
  if (!TakeMemory(bytes)) return false;
  pinned_held_ += bytes;  // before there is room for it: it must never look as if it could be moved
  if (TakeRoom(bytes)) {
    ReportRoom();
    return true;
  }
  pinned_held_ -= bytes;
  GiveMemory(bytes);
  return false;
}

void Attachment::GivePinned(std::uint64_t bytes) {
  pinned_held_ -= bytes;
  ReportRoom();
  GiveRoom(bytes);
  GiveMemory(bytes);
}

bool Attachment::TakeRoom(std::uint64_t bytes) {
  Nanos waits_since = 0;
  for (;;) {
    const std::uint32_t seen = Page()->doorbell.load(std::memory_order_acquire);
    {
      std::lock_guard holding(holding_);
      // Who counts no room now may be followed by a daemon that does.
      if (!swaps_ || TakeCredit(Page()->room_credit, bytes)) {
        room_held_ += bytes;
        return true;
      }
    }
    // What the program itself does not use comes first.
    if (paging_ && heap_empty_ > 0 && paging_->Trim()) continue;
    const Nanos now = MonotonicNow();
    if (waits_since == 0) {
      waits_since = now;
    } else if (now - waits_since > kLongestWait) {
      Say("no room on the GPU for %llu MiB after %lld s: is another program's memory stuck? See 'tessera ps'",
          static_cast<unsigned long long>(bytes >> 20), static_cast<long long>(kLongestWait / kSecond));
      return false;
    }
    {
      std::lock_guard holding(holding_);
      if (!swaps_) continue;
      wire::Page* page = Page();
      wire::RoomGranted answer;
      wire::Header header;
      const bool asked = Session::Instance().Ask(wire::Make(wire::Room{.bytes = bytes}, gpu_), answer, header);
      // What the driver has left is the next mover's, without which nothing could make room. Once it is clear that no
      // daemon comes there is nobody to leave it to.
      const bool alone = !asked && page == &fallback_;
      if (asked ? answer.bytes >= bytes
                : alone && page->gate.load(std::memory_order_relaxed) == wire::GateOrder::kOpen) {
        room_held_ += bytes;
        return true;
      }
      if (asked && !answer.wait) {
        page->oom_errors.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
      if (asked && now == waits_since) page->room_waits.fetch_add(1, std::memory_order_relaxed);
      if (alone) waits_since = now;
    }
    WaitForRing(seen, kReconnectEvery);
    MindDaemon(MonotonicNow());
  }
}

bool Attachment::Recall() {
  if (!swaps_) return false;
  wire::RoomGranted answer;
  wire::Header header;
  const bool asked = Session::Instance().Ask(wire::Make(wire::Room{.bytes = 0}, gpu_), answer, header);
  MindDaemon(MonotonicNow());
  return !asked || answer.wait;
}

bool Attachment::AskForLine(UniqueFd* line) {
  if (!swaps_) return false;
  wire::LineOpened answer;
  wire::Header header;
  return Session::Instance().Ask(wire::Make(wire::Line{}, gpu_), answer, header, {line, 1}) && *line;
}

void Attachment::GiveRoom(std::uint64_t bytes) {
  std::lock_guard holding(holding_);
  room_held_ -= bytes;
  if (swaps_) Page()->room_credit.fetch_add(static_cast<std::int64_t>(bytes));
}

void Attachment::HeapHolds(const pager::HeapFigures& figures) {
  if (figures.swapped > heap_swapped_) more_out_ = true;
  heap_moved_out_ = figures.moved_out;
  heap_moved_in_ = figures.moved_in;
  heap_pinned_ = figures.pinned;
  heap_empty_ = figures.empty;
  heap_swapped_ = figures.swapped;
  heap_unsafe_ = figures.unsafe;
  heap_recalled_ = figures.recalled;
  ReportRoom();
}

void Attachment::ReportRoom() {
  std::lock_guard lock(report_mutex_);
  wire::Page* page = Page();
  page->pinned.store(pinned_held_ + heap_pinned_, std::memory_order_relaxed);
  page->empty.store(heap_empty_, std::memory_order_relaxed);
  page->recalled.store(heap_recalled_, std::memory_order_relaxed);
  page->moved_out.store(heap_moved_out_ - moved_out_before_, std::memory_order_relaxed);
  page->swapped.store(heap_swapped_, std::memory_order_release);
  page->moved_in.store(heap_moved_in_ - moved_in_before_, std::memory_order_release);
  page->guard.unsafe = heap_unsafe_.load();
  NoteCalls(0);
}

// No lock: it is called for each copy. Whoever stores last has seen that what it stored is so.
void Attachment::NoteCalls(int change) {
  calls_ += static_cast<std::uint32_t>(change);
  for (std::uint32_t now = calls_;; now = calls_) {
    Page()->calls = now;
    if (calls_ == now) return;
  }
}

void Attachment::NoteUse(const GatedCall& call) {
  // While a stream captures, a question about a function might load it, which some captures forbid.
  if (HostBacked() && !AnyCapture()) TouchOperands(call, paging_->Heap(), MonotonicNow());
}

// What should change places: the daemon has that done, and sees to it that it costs little.
void Attachment::ReportHot(Nanos now) {
  if (now < next_hot_) return;
  next_hot_ = now + pager::UseHistory::kInterval / 2;
  Page()->hot_out.store(HostBacked() ? paging_->Heap().Heat().HotOut(now) : 0, std::memory_order_relaxed);
}

}  // namespace tessera::shim
