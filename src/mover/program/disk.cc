#include "mover/program/disk.h"

#include <sys/eventfd.h>

#include <utility>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

Disk::Disk(Gpu& gpu, const SwapFile& file)
    : gpu_(gpu), file_(file), ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { Run(); }) {}

Disk::~Disk() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
  // A move and its program own one another while it is under way.
  for (const Job& job : jobs_) job.move->program.reset();
  for (const Outcome& outcome : outcomes_) outcome.move->program.reset();
}

void Disk::Start(std::shared_ptr<FileMove> move, const HostMemory& memory) {
  {
    const MutexLock lock(mutex_);
    jobs_.push_back({.move = std::move(move), .memory = &memory});
  }
  wake_.NotifyOne();
}

std::vector<Disk::Outcome> Disk::Finished() {
  eventfd_t count;
  eventfd_read(ended_fd_.Get(), &count);
  const MutexLock lock(mutex_);
  return std::exchange(outcomes_, {});
}

void Disk::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && jobs_.empty()) wake_.Wait(mutex_);
    if (stop_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.Unlock();
    Result<void> result = Do(job);
    lock.Lock();
    outcomes_.push_back({.move = job.move, .result = std::move(result)});
    eventfd_write(ended_fd_.Get(), 1);
  }
}

// Of the move it reads what does not change while it is under way.
Result<void> Disk::Do(const Job& job) {
  const auto bytes = gpu_.BytesOf(*job.memory);
  if (!bytes) return std::unexpected(bytes.error());
  const bool out = job.move->direction == Direction::kOut;
  Result<void> done = out ? file_.Write(job.move->place, *bytes) : file_.Read(job.move->place, *bytes);
  if (done) PassFault(out ? "mover.file.written" : "mover.file.read");
  return done;
}

}  // namespace tessera::mover
