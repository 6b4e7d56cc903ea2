#include "mover/program/disk.h"

#include <sys/eventfd.h>

#include <utility>

namespace tessera::mover {

Disk::Disk() : ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { Run(); }) {}

Disk::~Disk() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void Disk::Start(Work work, Done done) {
  {
    const MutexLock lock(mutex_);
    jobs_.push_back({.work = std::move(work), .done = std::move(done), .result = {}});
  }
  wake_.NotifyOne();
}

void Disk::Finish() {
  eventfd_t count;
  eventfd_read(ended_fd_.Get(), &count);
  std::vector<Job> ended;
  {
    const MutexLock lock(mutex_);
    ended = std::exchange(ended_, {});
  }
  for (const Job& job : ended) job.done(job.result);
}

void Disk::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && jobs_.empty()) wake_.Wait(mutex_);
    if (stop_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.Unlock();
    job.result = job.work();
    lock.Lock();
    ended_.push_back(std::move(job));
    eventfd_write(ended_fd_.Get(), 1);
  }
}

}  // namespace tessera::mover
