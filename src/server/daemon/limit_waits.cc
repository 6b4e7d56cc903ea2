#include "server/daemon/limit_waits.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>

#include "base/size.h"

namespace tessera::server {
namespace {

std::unexpected<Error> TooMuchStays(const VGpuReport& vgpu, const std::string& why) {
  return Fail(EBUSY,
              fmt::format("memory_limit of vGPU {} is {} now, but {} more are on the GPU: {}", vgpu.name,
                          FormatSize(vgpu.memory_limit), FormatSize(vgpu.memory_over_limit), why),
              "see 'tessera gpus' and 'tessera ps --json'; the limit holds for what can be moved later");
}

}  // namespace

Result<VGpuReport> LimitWaits::Await(const std::function<Result<VGpuReport>()>& look, bool by_operator) {
  Result<VGpuReport> report = look();
  if (!report || report->memory_over_limit == 0) return report;
  struct Place {
    explicit Place(std::atomic<int>& places) : taken(places), before(taken++) {}
    Place(const Place&) = delete;
    ~Place() { --taken; }
    std::atomic<int>& taken;
    const int before;
  } const place{waiting_};
  std::optional<Place> users;
  if (!by_operator) users.emplace(users_waiting_);
  if (place.before >= bounds_.most || (users && users->before >= bounds_.most_of_users))
    return Fail(EAGAIN, "too many changes of memory_limit wait for memory to be moved",
                "the limit is set: read memory_over_limit_bytes to see when it is kept");
  std::uint64_t least = report->memory_over_limit;
  Nanos progressed_at = MonotonicNow();
  while (report && report->memory_over_limit > 0) {
    if (!report->over_limit_error.empty()) return TooMuchStays(*report, report->over_limit_error);
    const Nanos now = MonotonicNow();
    if (report->memory_over_limit < least) {
      least = report->memory_over_limit;
      progressed_at = now;
    }
    if (now - progressed_at >= bounds_.patience)
      return TooMuchStays(*report, fmt::format("stalled, no progress for {} s", bounds_.patience / kSecond));
    std::this_thread::sleep_for(std::chrono::nanoseconds(bounds_.again));
    report = look();
  }
  return report;
}

}  // namespace tessera::server
