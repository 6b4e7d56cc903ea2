#include "soft/exec/dispatcher.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <utility>

namespace tessera::soft {

using cuda::CUresult;

namespace {

// How often memory that a stream waits for is looked at: plain stores by the program or a kernel wake nobody.
constexpr std::chrono::microseconds kMemoryWaitInterval{100};

// A thread of ours must not run the program's signal handlers.
std::thread StartWithoutSignals(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

struct Dispatcher::Board {
  std::mutex mutex;
  std::condition_variable ended;  // some operation has ended
};

// Never destroyed: at exit threads may still wait on it, and destroying a condition variable waits for them.
Dispatcher::Board& Dispatcher::board() {
  static Board& board = *new Board;
  return board;
}

void Dispatcher::Stop() {
  aborting_ = true;
  {
    std::lock_guard lock(board().mutex);
    stopping_ = true;
    for (LaneState& lane : lanes_) lane.wake.notify_all();
  }
  for (LaneState& lane : lanes_) {
    if (lane.thread.joinable()) lane.thread.join();
  }
  std::vector<Task> ended;  // dies after the lock is free
  std::lock_guard lock(board().mutex);
  // What still waits, for another context's work say, counts as ended so that nobody waits for it in turn.
  while (!unfinished_.empty()) Finish({*unfinished_.begin()}, ended, Lane::kNone);
}

OpRef Dispatcher::Submit(Task task, std::span<const OpRef> after) {
  auto op = std::make_shared<Op>();
  op->dispatcher = this;
  op->task = std::move(task);
  std::vector<Task> ended;
  std::lock_guard lock(board().mutex);
  for (const OpRef& earlier : after) {
    if (!earlier || earlier->done) continue;
    earlier->followers.push_back(op);
    ++op->blockers;
  }
  unfinished_.insert(op);
  if (op->blockers == 0) {
    std::vector<OpRef> finished;
    MakeReady(op, finished, Lane::kNone);
    Finish(std::move(finished), ended, Lane::kNone);
  }
  return op;
}

void Dispatcher::Wait(const OpRef& op) {
  if (!op) return;
  std::unique_lock lock(board().mutex);
  board().ended.wait(lock, [&] { return op->done; });
}

bool Dispatcher::Done(const OpRef& op) {
  if (!op) return true;
  std::lock_guard lock(board().mutex);
  return op->done;
}

Nanos Dispatcher::FinishedAt(const OpRef& op) {
  if (!op) return 0;
  std::lock_guard lock(board().mutex);
  return op->finished_at;
}

void Dispatcher::Synchronize() {
  std::unique_lock lock(board().mutex);
  const std::vector<OpRef> before(unfinished_.begin(), unfinished_.end());
  for (const OpRef& op : before) board().ended.wait(lock, [&] { return op->done; });
}

// Runs on the lane's own thread until Stop. What is ready by then is dropped.
void Dispatcher::RunLane(Lane which) {
  LaneState& lane = StateOf(which);
  std::unique_lock lock(board().mutex);
  while (!stopping_) {
    if (lane.ready.empty()) {
      if (which == Lane::kCompute) {
        lock.unlock();
        callbacks_.on_compute_idle();
        lock.lock();
      }
      lane.wake.wait(lock, [&] { return stopping_ || !lane.ready.empty(); });
      continue;
    }
    const OpRef op = lane.ready.front();
    lane.ready.pop_front();
    lock.unlock();
    const bool skipped = aborting() && !op->task.even_after_error;
    const CUresult result = skipped ? cuda::CUDA_SUCCESS : op->task.body();
    const bool failed = result != cuda::CUDA_SUCCESS && result != cuda::CUDA_ERROR_NOT_READY;
    if (failed) {
      callbacks_.on_error(result);
      aborting_ = true;
    }
    lock.lock();
    if (result == cuda::CUDA_ERROR_NOT_READY && stopping_) break;
    if (result == cuda::CUDA_ERROR_NOT_READY) {
      op->task.lane = Lane::kMemory;
      op->task.brief = false;
      Enqueue(op);
      if (which == Lane::kMemory) lane.wake.wait_for(lock, kMemoryWaitInterval);
      continue;
    }
    std::vector<Task> ended;  // dies without the lock: a task may own memory or a module
    Finish({op}, ended, which);
    lock.unlock();
    ended.clear();
    lock.lock();
  }
}

// Gives `op`, which nothing blocks any more, to its lane, or to `finished` if nothing will be done.
void Dispatcher::MakeReady(const OpRef& op, std::vector<OpRef>& finished, Lane here) {
  Dispatcher& dispatcher = *op->dispatcher;
  if (op->task.lane == Lane::kNone || dispatcher.stopping_) {
    finished.push_back(op);
    return;
  }
  if (op->task.brief && &dispatcher == this && here != Lane::kNone) op->task.lane = here;
  dispatcher.Enqueue(op);
}

void Dispatcher::Enqueue(const OpRef& op) {
  LaneState& lane = StateOf(op->task.lane);
  op->task.brief ? lane.ready.push_front(op) : lane.ready.push_back(op);
  if (!lane.thread.joinable()) lane.thread = StartWithoutSignals([this, which = op->task.lane] { RunLane(which); });
  lane.wake.notify_one();
}

// Ends operations and all that become ready and have nothing to do thereby. Their tasks move to `ended`, for the caller
// to destroy without the lock.
void Dispatcher::Finish(std::vector<OpRef> finished, std::vector<Task>& ended, Lane here) {
  while (!finished.empty()) {
    const OpRef op = std::move(finished.back());
    finished.pop_back();
    op->done = true;
    op->finished_at = MonotonicNow();
    ended.push_back(std::move(op->task));
    for (const OpRef& follower : std::exchange(op->followers, {})) {
      if (--follower->blockers == 0 && !follower->done) MakeReady(follower, finished, here);
    }
    op->dispatcher->unfinished_.erase(op);
  }
  board().ended.notify_all();
}

}  // namespace tessera::soft
