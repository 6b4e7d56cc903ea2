// One GPU as this process uses it under its vGPU: the shared page, the gates of its contexts, the pacer thread.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "pager/heap.h"
#include "shim/gate/gate.h"
#include "shim/session/session.h"
#include "wire/page.h"

namespace tessera::shim {

// Never destroyed. docs/protocol.md ("The gate") is what it follows; "parked" is a word from there.
class Paging;
struct GatedCall;

class Attachment {
 public:
  // The attachment of a device, made at its first use; null where the process is not managed or the daemon refused.
  static Attachment* Of(cuda::CUdevice device);
  // Calls `visit` for each attachment that exists.
  template <typename Visit>
  static void ForEach(Visit&& visit);

  // ---- submissions ----

  // Called on the thread that submits, when its trampoline could not pass: waits for the token or for room in the
  // window. CUDA_SUCCESS: submit now.
  cuda::CUresult Enter(Gate& gate);

  // Before and after the program waits for its work: the end of it is then seen at once.
  void BeforeSync(Gate& gate);
  void AfterSync(Gate& gate);

  // Before (1) and after (-1) a call that may wait for the GPU though it submits nothing.
  void NoteCalls(int change);

  // ---- contexts ----

  // The gate of a context of this device, made at its first use.
  Gate* GateOf(cuda::CUcontext context);
  // Runs `end`, which may destroy the context and says whether it did, while no thread places a marker in it.
  template <typename End>
  void EndContext(cuda::CUcontext context, End&& end) {
    std::lock_guard lock(mutex_);
    if (end()) Forget(context);
  }
  // Runs `change` while no thread places a marker.
  template <typename Change>
  void WithoutMarkers(Change&& change) {
    std::lock_guard lock(mutex_);
    change();
  }

  // ---- memory ----

  // Takes `bytes` of the vGPU's memory. False: it would pass memory.max.
  bool TakeMemory(std::uint64_t bytes);
  void GiveMemory(std::uint64_t bytes);
  // What cannot be moved needs room on the GPU, too.
  bool TakePinned(std::uint64_t bytes);
  void GivePinned(std::uint64_t bytes);
  // Room on the GPU alone. Waits while the daemon makes some. False: there will be none.
  bool TakeRoom(std::uint64_t bytes);
  void GiveRoom(std::uint64_t bytes);
  std::uint64_t MemoryTotal() const { return memory_total_; }
  // Where the memory of the pager's heap lies now.
  void HeapHolds(const pager::HeapFigures& figures);
  // Where this program and whoever may let it run without a daemon agree on that.
  MoveGuard& Guard() const { return Page()->guard; }
  // A submission passes: what it works on is used.
  void NoteUse(const GatedCall& call);
  // Has the daemon bring back what is pinned and lies in host memory. To be repeated every kReconnectEvery until it is
  // there. False: there is no place for it.
  bool Recall();
  cuda::CUdevice Device() const { return device_; }
  std::uint32_t Gpu() const { return gpu_; }  // as the daemon counts
  // A line to the mover. False: there is none.
  bool AskForLine(UniqueFd* line);
  // Where memory is allocated so that it can be moved; null where it is not.
  Paging* Pager() const { return paging_; }
  bool AddContext();
  void DropContext();
  // memory.max and what is free below it, bytes.
  std::uint64_t MemoryMax() const { return Page()->memory_max.load(std::memory_order_relaxed); }
  std::uint64_t MemoryFree() const;

  // Stops the pacer's use of the driver: the process ends.
  void Stop();
  void AbandonAfterFork();

 private:
  Attachment(cuda::CUdevice device, wire::Uuid uuid) : device_(device), uuid_(uuid) {}
  static Attachment* Make(cuda::CUdevice device);
  enum class Attaching { kDone, kRefused, kGone };  // kGone: no daemon answered, a later try may do better
  Attaching Attach(UniqueFd* line, bool works = false);
  void StartPacer();

  wire::Page* Page() const { return page_.load(std::memory_order_acquire); }
  void Adopt(wire::Page* page);
  void ReportRoom();
  void ReportHot(Nanos now);
  void Ring();
  void WaitForRing(std::uint32_t seen, Nanos timeout);
  // Some of what the program may work on lies in host memory, and is reached over the bus.
  bool HostBacked() const { return heap_swapped_.load(std::memory_order_relaxed) > 0; }
  bool Bounds(wire::GateOrder order) const;
  Nanos Window(wire::GateOrder order) const;
  bool WatchesEnds() const;

  // With mutex_ held:
  void Forget(cuda::CUcontext context);
  void Close(Gate& gate);
  void CloseAll();
  bool Fill(Gate& gate, bool bounded);
  void NoteMoves();
  static void Give(Gate& gate, std::int64_t budget);
  static bool Stuck(const Gate& gate, Nanos since, Nanos now);
  void Park();
  bool AllDrained() const;
  Nanos LastReached() const;
  std::int64_t Submitted() const;
  void Observe(Gate& gate, Nanos now);
  void ObserveAll(Nanos now);
  void CoverAll(Nanos now, bool learn);

  static void* PacerMain(void* self);
  void Pace();
  void Unpark();
  Nanos LookWhileParked(Nanos now);
  Nanos Tick(Nanos now);
  void MindDaemon(Nanos now);
  static bool Reconnect();
  static bool ReconnectLocked();
  bool Reattach();

  const cuda::CUdevice device_;
  const wire::Uuid uuid_;
  std::uint32_t gpu_ = 0;
  std::uint64_t context_bytes_ = 0;
  std::uint64_t memory_total_ = 0;  // of the GPU
  std::atomic<wire::Page*> page_{nullptr};
  wire::Page fallback_;  // orders to follow while no daemon gives any
  bool on_fallback_ = false;

  std::mutex mutex_;  // guards the gates' markers and budgets and all below
  std::vector<Gate*> gates_;
  std::vector<Gate*> spare_;
  bool parked_ = true;
  Nanos parked_look_ = 0;  // when it is looked, or was, whether it is so
  bool stopped_ = false;
  bool wants_sent_ = false;
  std::uint32_t wants_epoch_ = 0;    // epoch when Wants was sent
  std::int64_t tick_submitted_ = 0;  // submissions at the pacer's last tick
  Nanos active_since_ = 0;           // when work began after the last idle time, 0: idle
  Nanos last_activity_ = 0;
  Nanos busy_ = 0;  // while active, before active_since_

  std::atomic<bool> swaps_{false};  // the daemon counts room
  Paging* paging_ = nullptr;        // never destroyed

  // Guards what is told a new daemon, together with the page whose credits it was taken from or given back to: the one
  // never changes without the other. Held for a round trip; not while memory is waited for, nor when Trim gives back.
  // Taken after mutex_.
  std::mutex holding_;
  std::uint64_t memory_held_ = 0;  // bytes in use
  std::uint64_t room_held_ = 0;    // likewise
  std::uint32_t contexts_held_ = 0;

  std::atomic<std::uint64_t> pinned_held_{0};  // of the room, by TakePinned
  std::atomic<std::uint64_t> heap_pinned_{0};  // and by the heap
  std::atomic<std::uint64_t> heap_empty_{0}, heap_swapped_{0}, heap_unsafe_{0}, heap_recalled_{0};
  std::atomic<std::uint64_t> heap_moved_out_{0}, heap_moved_in_{0};
  std::uint64_t moved_out_before_ = 0, moved_in_before_ = 0;  // when it attached
  std::mutex report_mutex_;                                   // what is told last is what is so
  std::atomic<std::uint32_t> calls_{0};                       // see wire::Page
  std::atomic<bool> more_out_{false};              // memory went to the host, and the gates have not been told
  Nanos next_hot_ = 0;                             // when the pacer looks again what is hot; its own
  std::atomic<std::uint64_t> memory_returned_{0};  // sum of the Return messages to this daemon
};

// How often a program looks for a daemon that is gone, and asks again for what it waits for.
inline constexpr Nanos kReconnectEvery = 200 * kMillisecond;

inline constexpr int kMaxDevices = 64;
extern std::atomic<Attachment*> attachments[kMaxDevices];

template <typename Visit>
void Attachment::ForEach(Visit&& visit) {
  for (auto& slot : attachments)
    if (Attachment* attachment = slot.load(std::memory_order_acquire)) visit(*attachment);
}

}  // namespace tessera::shim
