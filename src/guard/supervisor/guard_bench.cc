// Measures the time that the kernel gate adds to a request that passes it: the same ioctl without and with the filter,
// in turn, in one run. Needs no GPU: the ioctl is a control on /dev/null, which fails at once. Prints one line of JSON.
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "guard/supervisor/supervisor.h"
#include "guard/testing/fake_driver.h"
#include "guard/testing/tenant.h"

namespace tessera::guard {
namespace {

constexpr std::size_t kCalls = 20000, kWarmUp = 2000;

struct Quantiles {
  double p50_us = 0, p99_us = 0;
};

// `before` is done before each call, and not measured.
template <typename Call, typename Before>
Quantiles Measure(const Call& call, const Before& before) {
  std::vector<Nanos> times(kCalls);
  for (std::size_t i = 0; i < kWarmUp; ++i) call();
  for (Nanos& time : times) {
    before();
    const Nanos start = MonotonicNow();
    call();
    time = MonotonicNow() - start;
  }
  std::sort(times.begin(), times.end());
  return {static_cast<double>(times[kCalls / 2]) / kMicrosecond,
          static_cast<double>(times[kCalls * 99 / 100]) / kMicrosecond};
}

template <typename Call>
Quantiles Measure(const Call& call) {
  return Measure(call, [] {});
}

template <typename Before>
Quantiles MeasureControl(const Before& before) {
  const Rm rm{open("/dev/null", O_RDWR | O_CLOEXEC)};
  return Measure([&] { rm.Control(1, channel::abi::kGroupGetSlice, nullptr, 0); }, before);
}

// Goes to another core, so that the supervisor's thread was last on one that is idle now: on a machine with many cores
// that is where the kernel would wake it, were it not asked to do so on the caller's.
void ChangeCore() {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  int core = sched_getcpu();
  do core = (core + 1) % CPU_SETSIZE;
  while (!CPU_ISSET(core, &all));
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
  sched_setaffinity(0, sizeof all, &all);
  usleep(20);  // the thread it left has gone to sleep
}

// Executed by the supervisor, with a driver that does next to nothing.
Quantiles MeasureMemory() {
  const Rm rm{FakeDriver::Open()};
  return Measure([&] {
    rm.Memory(1, kMiB);
    rm.Free(1);
  });
}

int Main() {
  auto* results =
      static_cast<Quantiles*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  results[0] = MeasureControl([] {});
  Tenant tenant([&] {
    results[1] = MeasureControl([] {});
    results[2] = MeasureMemory();
    const Rm unguarded{open("/dev/null", O_RDWR | O_CLOEXEC)};
    results[3] = Measure([&] { ioctl(unguarded.file, TCGETS, nullptr); });
    results[4] = MeasureControl(ChangeCore);
    return 0;
  });
  if (!tenant.Permitted()) {
    std::fprintf(stderr, "guard_bench: seccomp user notification is not permitted here\n");
    return 1;
  }
  const SupervisorHooks hooks{.charge = [](pid_t, std::uint32_t, std::uint64_t) { return true; },
                              .give_back = [](pid_t, std::uint32_t, std::uint64_t) {},
                              .object = [](pid_t, const channel::ObjectEvent&) {},
                              .ended = [](std::uint64_t) {},
                              .refused = [](pid_t, const std::string&) {},
                              .unknown = [](pid_t, const std::string&) {}};
  const auto supervisor =
      Supervisor::Start(hooks, {}, std::move(*TreeRecord::Create({})), std::make_unique<FakeDriver>());
  if (!supervisor) {
    std::fprintf(stderr, "guard_bench: %s\n", supervisor.error().Text().c_str());
    return 1;
  }
  (*supervisor)->Add(tenant.TakeListener());
  tenant.Go();
  if (tenant.Wait() != 0) return 1;
  std::printf(
      "{\"bare_p50_us\":%.2f,\"bare_p99_us\":%.2f,\"passed_p50_us\":%.2f,\"passed_p99_us\":%.2f,"
      "\"alloc_free_p50_us\":%.2f,\"alloc_free_p99_us\":%.2f,\"other_ioctl_p50_us\":%.2f,\"other_ioctl_p99_us\":%.2f,"
      "\"moved_p50_us\":%.2f,\"moved_p99_us\":%.2f}\n",
      results[0].p50_us, results[0].p99_us, results[1].p50_us, results[1].p99_us, results[2].p50_us, results[2].p99_us,
      results[3].p50_us, results[3].p99_us, results[4].p50_us, results[4].p99_us);
  return 0;
}

}  // namespace
}  // namespace tessera::guard

int main() { return tessera::guard::Main(); }
