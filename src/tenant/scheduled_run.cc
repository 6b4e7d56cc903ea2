#include "tenant/scheduled_run.h"

#include <time.h>

#include <algorithm>
#include <cstdio>

namespace tessera::tenant {
namespace {

// Or until a signal comes.
void SleepUntil(Nanos moment) {
  const timespec at{.tv_sec = static_cast<time_t>(moment / kSecond), .tv_nsec = static_cast<long>(moment % kSecond)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

Nanos Percentile(const std::vector<Nanos>& sorted, double part) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(part * sorted.size()))];
}

}  // namespace

ScheduledRun::ScheduledRun(Driver& driver, Work& work, const Schedule& schedule, unsigned launches, Nanos service,
                           std::uint64_t memory_stride)
    : driver_(driver),
      work_(work),
      schedule_(schedule),
      launches_(launches),
      memory_stride_(memory_stride),
      due_(schedule.Due(service)) {
  FollowMemory();
  Must(driver_.CtxSynchronize(), "cuCtxSynchronize");
}

void ScheduledRun::Loop(const volatile sig_atomic_t& stop) {
  begin_ = MonotonicNow();
  const auto& steps = schedule_.steps();
  for (std::size_t burst = 0; !stop;) {
    const Nanos next_step = step_ + 1 < steps.size() ? steps[step_].at : schedule_.end();
    const Nanos next_burst = burst < due_.size() ? due_[burst] : schedule_.end();
    const Nanos next = std::min(next_step, next_burst);
    if (MonotonicNow() < begin_ + next) {
      SleepUntil(begin_ + next);
      continue;
    }
    if (step_ + 1 < steps.size() && next_step <= next_burst) {
      FollowMemory();
    } else if (burst < due_.size()) {
      Burst(due_[burst++]);
    } else {
      return;
    }
  }
}

void ScheduledRun::FollowMemory() {
  const std::uint64_t pieces = (schedule_.steps()[step_++].memory + kPiece - 1) / kPiece;
  // Not verified before: that is work on the GPU, for which a program that waits would need all its memory back.
  while (memory_.size() > pieces) memory_.pop_back();
  while (memory_.size() < pieces) {
    memory_.push_back(std::make_unique<Pattern>(driver_, kPiece, memory_stride_, false));
    if (!memory_.back()->allocated()) Must(cuda::CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc of the schedule's memory");
  }
}

void ScheduledRun::Burst(Nanos due) {
  work_.Submit(launches_, 1);
  work_.Drain();
  const Nanos now = MonotonicNow();
  latencies_.push_back(now - (begin_ + due));
  done_in_time_ += now <= begin_ + schedule_.end();
}

bool ScheduledRun::Verify() {
  return std::ranges::all_of(memory_, [](const auto& piece) { return piece->Verify(); });
}

void ScheduledRun::ReportDone(bool verified) {
  std::vector<Nanos> sorted = latencies_;
  std::ranges::sort(sorted);
  std::printf(
      "{\"event\":\"done\",\"time_us\":%lld,\"bursts_due\":%zu,\"bursts_done\":%llu,\"p50_us\":%lld,\"p99_us\":%lld,"
      "\"max_us\":%lld,\"verified\":%s}\n",
      static_cast<long long>(MonotonicNow() / kMicrosecond), due_.size(),
      static_cast<unsigned long long>(done_in_time_), static_cast<long long>(Percentile(sorted, 0.5) / kMicrosecond),
      static_cast<long long>(Percentile(sorted, 0.99) / kMicrosecond),
      static_cast<long long>(Percentile(sorted, 1) / kMicrosecond), verified ? "true" : "false");
}

}  // namespace tessera::tenant
