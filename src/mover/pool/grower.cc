#include "mover/pool/grower.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "base/fault.h"
#include "wire/line.h"

namespace tessera::mover {
namespace {

constexpr int kLowNice = 10;

}  // namespace

Grower::Grower(Gpu& gpu, std::function<MachineMemory()> machine, Priority priority)
    : gpu_(gpu),
      machine_(std::move(machine)),
      priority_(priority),
      ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

Grower::~Grower() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void Grower::Start(PoolGrowth::Job job) {
  busy_ = true;
  {
    const MutexLock lock(mutex_);
    job_ = std::move(job);
  }
  wake_.NotifyOne();
}

std::optional<Grower::Outcome> Grower::Take() {
  eventfd_t count;
  eventfd_read(ended_fd_.Get(), &count);
  const MutexLock lock(mutex_);
  if (outcome_) busy_ = false;
  return std::exchange(outcome_, std::nullopt);
}

void Grower::Run() {
  if (priority_ == Priority::kLow) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowNice);
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && !job_) wake_.Wait(mutex_);
    if (stop_ || !job_) return;
    PoolGrowth::Job job = std::move(*job_);
    job_.reset();
    lock.Unlock();
    Outcome outcome = Do(std::move(job));
    lock.Lock();
    outcome_ = std::move(outcome);
    eventfd_write(ended_fd_.Get(), 1);
  }
}

Grower::Outcome Grower::Do(PoolGrowth::Job job) {
  Outcome outcome = {.kind = job.kind, .made = {}};
  const Nanos begin = MonotonicNow();
  if (job.kind == PoolGrowth::Job::Kind::kFree) {
    gpu_.FreeHost(std::move(job.removed.memory));
  } else if (const auto may = machine_().MayTake(wire::kChunkBytes); !may) {
    outcome.made = std::unexpected(may.error());
  } else {
    outcome.made = gpu_.MakeHost();
    if (outcome.made) PassFault("mover.pool.grown");
  }
  outcome.took = MonotonicNow() - begin;
  return outcome;
}

}  // namespace tessera::mover
