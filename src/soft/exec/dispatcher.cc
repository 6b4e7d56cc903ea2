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

}  // namespace

std::thread StartWithoutSignals(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

// Never destroyed: at exit threads may still wait on it, and destroying a condition variable waits for them.
CondVar& Dispatcher::Ended() {
  static CondVar& ended = *new CondVar;
  return ended;
}

void Dispatcher::Stop() {
  aborting_ = true;
  std::vector<std::thread> threads;
  {
    const MutexLock lock(dispatcher_mutex);
    stopping_ = true;  // from now on no lane starts a thread
    for (LaneState& lane : lanes_) {
      lane.wake.NotifyAll();
      if (lane.thread.joinable()) threads.push_back(std::move(lane.thread));
    }
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Task> ended;  // dies after the lock is free
  const MutexLock lock(dispatcher_mutex);
  // Operations that still wait, for another context's work say, count as ended, so that no other waits for them.
  while (!unfinished_.empty()) Finish({*unfinished_.begin()}, ended, Lane::kNone);
}

OpRef Dispatcher::Submit(Task task, std::span<const OpRef> after) {
  auto op = std::make_shared<Op>();
  op->dispatcher = this;
  op->task = std::move(task);
  std::vector<Task> ended;
  const MutexLock lock(dispatcher_mutex);
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
  const MutexLock lock(dispatcher_mutex);
  while (!op->done) Ended().Wait(dispatcher_mutex);
}

bool Dispatcher::Done(const OpRef& op) {
  if (!op) return true;
  const MutexLock lock(dispatcher_mutex);
  return op->done;
}

Nanos Dispatcher::FinishedAt(const OpRef& op) {
  if (!op) return 0;
  const MutexLock lock(dispatcher_mutex);
  return op->finished_at;
}

void Dispatcher::Synchronize() {
  const MutexLock lock(dispatcher_mutex);
  const std::vector<OpRef> before(unfinished_.begin(), unfinished_.end());
  for (const OpRef& op : before) {
    while (!op->done) Ended().Wait(dispatcher_mutex);
  }
}

bool Dispatcher::Idle() {
  const MutexLock lock(dispatcher_mutex);
  return unfinished_.empty();
}

// Runs on the lane's own thread until Stop. What is ready by then is dropped.
void Dispatcher::RunLane(Lane which) {
  MutexLock lock(dispatcher_mutex);
  LaneState& lane = StateOf(which);
  while (!stopping_) {
    if (lane.ready.empty()) {
      if (which == Lane::kCompute) {
        lock.Unlock();
        callbacks_.on_compute_idle();
        lock.Lock();
      }
      while (!stopping_ && lane.ready.empty()) lane.wake.Wait(dispatcher_mutex);
      continue;
    }
    const OpRef op = lane.ready.front();
    lane.ready.pop_front();
    lock.Unlock();
    const bool skipped = aborting() && !op->task.even_after_error;
    const CUresult result = skipped ? cuda::CUDA_SUCCESS : op->task.body();
    const bool failed = result != cuda::CUDA_SUCCESS && result != cuda::CUDA_ERROR_NOT_READY;
    if (failed) {
      callbacks_.on_error(result);
      aborting_ = true;
    }
    lock.Lock();
    if (result == cuda::CUDA_ERROR_NOT_READY && stopping_) break;
    if (result == cuda::CUDA_ERROR_NOT_READY) {
      op->task.lane = Lane::kMemory;
      op->task.brief = false;
      Enqueue(op);
      if (which == Lane::kMemory) lane.wake.WaitFor(dispatcher_mutex, kMemoryWaitInterval);
      continue;
    }
    std::vector<Task> ended;  // dies without the lock: a task may own memory or a module
    Finish({op}, ended, which);
    lock.Unlock();
    ended.clear();
    lock.Lock();
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
  lane.wake.NotifyOne();
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
  Ended().NotifyAll();
}

}  // namespace tessera::soft
