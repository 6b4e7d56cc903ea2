// tessera-tenant: an ordinary CUDA program that knows nothing of Tessera. Demo, end-to-end tests and benchmarks run it.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "tenant/driver.h"
#include "tenant/memory.h"
#include "tenant/options.h"
#include "tenant/schedule.h"
#include "tenant/scheduled_run.h"
#include "tenant/work.h"

namespace tessera::tenant {
namespace {

volatile sig_atomic_t stop_requested = 0;
volatile sig_atomic_t grab_requested = 0;

void ListenToSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = [](int) { grab_requested = 1; };
  sigaction(SIGUSR1, &action, nullptr);
}

long long Microseconds(Nanos t) { return t / kMicrosecond; }

// One run: the loop, what ends it, and the lines about it. Times in the lines are CLOCK_MONOTONIC microseconds.
class Run {
 public:
  Run(const Options& options, Driver& driver, Work& work)
      : options_(options), driver_(driver), work_(work), begin_(MonotonicNow()), reported_(begin_) {}

  void Loop() {
    while (!Ended()) {
      if (grab_requested) Grab();
      const std::uint64_t launches = NextBatch();
      work_.Submit(static_cast<unsigned>(launches), options_.ahead);
      submitted_ += launches;
      in_burst_ += launches;
      if (options_.burst && in_burst_ >= options_.burst) Pause();
      ReportProgress();
    }
    work_.Drain();
    end_ = MonotonicNow();
  }

  // Results of the loop, without the time spent on verifying them.
  void ReportDone(bool verified) const {
    std::printf("{\"event\":\"done\",\"time_us\":%lld,\"kernels\":%llu,\"busy_us\":%lld,\"verified\":%s}\n",
                Microseconds(end_), static_cast<unsigned long long>(work_.completed()), BusyMicroseconds(end_),
                verified ? "true" : "false");
  }

 private:
  bool Ended() const {
    if (stop_requested) return true;
    if (options_.kernels && submitted_ >= options_.kernels) return true;
    return options_.seconds > 0 && MonotonicNow() - begin_ >= options_.seconds * kSecond;
  }

  std::uint64_t NextBatch() const {
    std::uint64_t launches = options_.depth ? options_.depth : options_.kernels;
    if (options_.kernels) launches = std::min(launches, options_.kernels - submitted_);
    if (options_.burst) launches = std::min(launches, options_.burst - in_burst_);
    return launches;
  }

  void Grab() {
    grab_requested = 0;
    const std::uint64_t granted = GrabUntilRefused(driver_, options_.grab_chunk, options_.grab_hold_us);
    std::printf("{\"event\":\"oom\",\"time_us\":%lld,\"granted_bytes\":%llu,\"refused_bytes\":%llu}\n",
                Microseconds(MonotonicNow()), static_cast<unsigned long long>(granted),
                static_cast<unsigned long long>(options_.grab_chunk));
  }

  void Pause() {
    work_.Drain();
    const Nanos begin = MonotonicNow();
    if (!stop_requested) usleep(options_.idle_us);
    paused_ += MonotonicNow() - begin;
    in_burst_ = 0;
  }

  void ReportProgress() {
    const Nanos now = MonotonicNow();
    if (options_.report_every_ms == 0 || now - reported_ < options_.report_every_ms * kMillisecond) return;
    reported_ = now;
    std::printf("{\"event\":\"progress\",\"time_us\":%lld,\"kernels\":%llu,\"busy_us\":%lld,\"longest_gap_us\":%lld}\n",
                Microseconds(now), static_cast<unsigned long long>(work_.completed()), BusyMicroseconds(now),
                Microseconds(work_.TakeLongestGap()));
  }

  // Time in which it had work or wanted it done: since the start, less its own pauses.
  long long BusyMicroseconds(Nanos until) const { return Microseconds(until - begin_ - paused_); }

  const Options& options_;
  Driver& driver_;
  Work& work_;
  const Nanos begin_;
  Nanos reported_;
  Nanos end_ = 0;
  Nanos paused_ = 0;
  std::uint64_t submitted_ = 0;
  std::uint64_t in_burst_ = 0;
};

void ReportReady(const Driver& driver, std::uint32_t iterations) {
  std::printf("{\"event\":\"ready\",\"time_us\":%lld,\"pid\":%d,\"device\":\"%s\",\"sms\":%d,\"iterations\":%u}\n",
              Microseconds(MonotonicNow()), getpid(), driver.device_name().c_str(), driver.sms(), iterations);
}

// For the next SIGUSR1, or for what ends the program.
void WaitForSignal() {
  while (!grab_requested && !stop_requested) usleep(1000);
  grab_requested = 0;
}

// A burst takes as long as the options say that its kernels do, whether these were calibrated or not.
int FollowSchedule(const Options& options, const Schedule& schedule, Driver& driver, Work& work,
                   std::uint32_t iterations) {
  ScheduledRun run(driver, work, schedule, options.burst, options.burst * options.kernel_time, options.memory_stride);
  ReportReady(driver, iterations);
  if (options.schedule_wait) WaitForSignal();
  run.Loop(stop_requested);
  if (options.schedule_wait) {
    std::printf("{\"event\":\"ended\",\"time_us\":%lld}\n", Microseconds(MonotonicNow()));
    WaitForSignal();
  }
  const bool intact = run.Verify();
  const bool verified = work.Verify() && intact;
  run.ReportDone(verified);
  return verified ? 0 : 1;
}

int Main(const Options& options) {
  std::optional<Schedule> schedule;
  if (!options.schedule.empty()) {
    auto read = Schedule::Read(options.schedule);
    if (!read) {
      std::fprintf(stderr, "tessera-tenant: %s\n", read.error().Text().c_str());
      return 2;
    }
    schedule = std::move(*read);
  }
  Driver driver;
  WorkShape shape{.blocks = options.blocks,
                  .threads = options.threads,
                  .iterations = options.iterations,
                  .sweep = options.sweep_bytes};
  if (shape.iterations == 0 && shape.sweep == 0) shape.iterations = Work::Calibrate(driver, shape, options.kernel_time);
  Work work(driver, shape);
  if (schedule) return FollowSchedule(options, *schedule, driver, work, shape.iterations);
  std::optional<Pattern> pattern;
  if (options.memory_bytes) {
    pattern.emplace(driver, options.memory_bytes, options.memory_stride);
    if (!pattern->allocated()) Must(cuda::CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc of --memory");
  }
  ReportReady(driver, shape.iterations);
  if (options.grab) grab_requested = 1;

  Run run(options, driver, work);
  run.Loop();
  const bool verified = work.Verify() && (!pattern || pattern->Verify());
  run.ReportDone(verified);
  return verified ? 0 : 1;
}

}  // namespace
}  // namespace tessera::tenant

int main(int argc, char** argv) {
  using namespace tessera::tenant;
  setvbuf(stdout, nullptr, _IOLBF, 0);  // whoever reads along must see each line at once
  const auto options = ParseOptions(argc, argv);
  if (!options) {
    std::fprintf(stderr, "tessera-tenant: %s; see --help\n", options.error().Text().c_str());
    return 2;
  }
  if (options->help) {
    std::fputs(Help().c_str(), stdout);
    return 0;
  }
  ListenToSignals();
  return Main(*options);
}
