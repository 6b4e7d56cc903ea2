// Executes what a context submits: operations that wait for one another, each run by the thread of its lane.
//
// Streams, events and graphs are ways to say which operation waits for which; the dispatcher knows only that.
// Operations of different contexts may wait for one another, so one lock of the process guards the bookkeeping of all
// dispatchers. The work itself runs outside that lock.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "cuda/abi_types.h"

namespace tessera::soft {

// Which thread runs an operation. Copies overlap kernels; host functions and memory waits hold up neither.
enum class Lane { kNone, kCompute, kCopy, kHost, kMemory };
inline constexpr std::size_t kLanes = 5;

// What an operation does. CUDA_ERROR_NOT_READY means "not yet": it is called again a little later, on the lane for
// memory waits, which are all that use it. Any other error is the context's end: whatever has not begun by then is
// skipped.
struct Task {
  Lane lane = Lane::kNone;
  std::function<cuda::CUresult()> body = nullptr;  // none for an operation that only marks a point
  bool even_after_error = false;                   // stream callbacks hear of errors
  bool brief = false;  // not worth a change of threads: runs on the thread that it becomes ready on, next of all
};

class Dispatcher;

// One submitted operation. Its fields are guarded by the dispatchers' lock.
struct Op {
  Dispatcher* dispatcher = nullptr;
  Task task;
  std::size_t blockers = 0;  // operations that have to end before this one begins
  std::vector<std::shared_ptr<Op>> followers;
  bool done = false;
  Nanos finished_at = 0;
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

  // An operation has failed or Stop was called: long work should return early.
  bool aborting() const { return aborting_.load(std::memory_order_acquire); }

 private:
  struct LaneState {
    std::deque<OpRef> ready;
    std::condition_variable wake;
    std::thread thread;
  };
  struct Board;  // what all dispatchers of the process share

  static Board& board();
  LaneState& StateOf(Lane lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  void RunLane(Lane which);
  void Enqueue(const OpRef& op);
  // `here`: the lane of this dispatcher whose thread calls; kNone for another thread.
  void MakeReady(const OpRef& op, std::vector<OpRef>& finished, Lane here);
  void Finish(std::vector<OpRef> finished, std::vector<Task>& ended, Lane here);

  const Callbacks callbacks_;
  std::atomic<bool> aborting_ = false;

  // Guarded by the board's lock.
  bool stopping_ = false;
  std::array<LaneState, kLanes> lanes_;
  std::unordered_set<OpRef> unfinished_;
};

}  // namespace tessera::soft
