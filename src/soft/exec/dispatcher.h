// Executes what a context submits: operations that wait for one another, each run by the thread of its lane.
//
// Streams, events and graphs are ways to say which operation waits for which; the dispatcher knows only that.
// Operations of different contexts may wait for one another, so one mutex of the process guards the bookkeeping of all
// dispatchers. The work itself runs without it.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "cuda/abi_types.h"

namespace tessera::soft {

// Which thread runs an operation. Copies overlap kernels; host functions and memory waits hold up neither.
enum class Lane { kNone, kCompute, kCopy, kHost, kMemory };
inline constexpr std::size_t kLanes = 5;

// The work of an operation. CUDA_ERROR_NOT_READY means "not yet": it is called again a little later, on the lane for
// memory waits, which are all that use it. Any other error is the context's end: whatever has not begun by then is
// skipped.
struct Task {
  Lane lane = Lane::kNone;
  std::function<cuda::CUresult()> body = nullptr;  // none for an operation that only marks a point
  bool even_after_error = false;                   // stream callbacks hear of errors
  bool brief = false;  // not worth a change of threads: runs on the thread that it becomes ready on, next of all
};

class Dispatcher;

// A thread of ours, which does not run the program's signal handlers.
std::thread StartWithoutSignals(std::function<void()> body);

inline constinit Mutex dispatcher_mutex;

// One submitted operation.
struct Op {
  Dispatcher* dispatcher = nullptr;
  Task task;  // changed with the mutex held while the operation waits; read by its lane's thread while it runs
  // Operations that have to end before this one begins.
  std::size_t blockers TESSERA_GUARDED_BY(dispatcher_mutex) = 0;
  std::vector<std::shared_ptr<Op>> followers TESSERA_GUARDED_BY(dispatcher_mutex);
  bool done TESSERA_GUARDED_BY(dispatcher_mutex) = false;
  Nanos finished_at TESSERA_GUARDED_BY(dispatcher_mutex) = 0;
};
using OpRef = std::shared_ptr<Op>;

// All methods may be called from any thread, Stop from none of its own.
class Dispatcher {
 public:
  // Called on lanes' threads, without locks.
  struct Callbacks {
    std::function<void(cuda::CUresult)> on_error;  // before anybody can see that the operation has ended
    std::function<void()> on_compute_idle;         // nothing more is ready for the compute lane
  };

  explicit Dispatcher(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  ~Dispatcher() { Stop(); }

  // Waits for what runs, which learns of it by aborting(), and drops what has not begun. Nothing may be submitted any
  // more.
  void Stop();

  // Runs `task` once all of `after` have ended; null entries are ignored. Never blocks.
  OpRef Submit(Task task, std::span<const OpRef> after);

  // Blocks until `op` has ended. A null operation has.
  static void Wait(const OpRef& op);
  static bool Done(const OpRef& op);
  // When `op` ended, 0 before that.
  static Nanos FinishedAt(const OpRef& op);

  // Blocks until everything submitted before the call has ended.
  void Synchronize();

  // Everything submitted before the call has ended.
  bool Idle();

  // An operation has failed or Stop was called: long work should return early.
  bool aborting() const { return aborting_.load(std::memory_order_acquire); }

 private:
  struct LaneState {
    std::deque<OpRef> ready;
    CondVar wake;
    std::thread thread;
  };
  static CondVar& Ended();  // some operation of some dispatcher has ended

  LaneState& StateOf(Lane lane) TESSERA_REQUIRES(dispatcher_mutex) { return lanes_[static_cast<std::size_t>(lane)]; }
  void RunLane(Lane which);
  void Enqueue(const OpRef& op) TESSERA_REQUIRES(dispatcher_mutex);
  // `here`: the lane of this dispatcher whose thread calls; kNone for another thread.
  void MakeReady(const OpRef& op, std::vector<OpRef>& finished, Lane here) TESSERA_REQUIRES(dispatcher_mutex);
  void Finish(std::vector<OpRef> finished, std::vector<Task>& ended, Lane here) TESSERA_REQUIRES(dispatcher_mutex);

  const Callbacks callbacks_;
  std::atomic<bool> aborting_ = false;

  bool stopping_ TESSERA_GUARDED_BY(dispatcher_mutex) = false;
  std::array<LaneState, kLanes> lanes_ TESSERA_GUARDED_BY(dispatcher_mutex);
  std::unordered_set<OpRef> unfinished_ TESSERA_GUARDED_BY(dispatcher_mutex);
};

}  // namespace tessera::soft
