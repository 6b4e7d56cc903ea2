#include "cli/commands/evict.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/size.h"
#include "cli/commands/targets.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

constexpr std::chrono::milliseconds kAskAgain(100);

// Waits until the evictions have ended.
Result<void> Await(const ApiClient& client, const std::string& target, const Json& evictions) {
  Patience patience;
  for (;;) {
    const auto processes = client.Get("/v1/processes");
    if (!processes) return std::unexpected(processes.error());
    const auto [left, error] = StandingOf(evictions, Field(*processes, "processes"));
    if (left == 0 && error.empty()) return {};
    if (left == 0)
      return Fail(ENOMEM, "some memory of " + target + " cannot be moved: " + error,
                  "see 'tessera gpus' and the daemon's log");
    if (!patience.Lasts(left, MonotonicNow()))
      return Fail(ETIMEDOUT, "eviction stalled: " + FormatSize(left) + " of " + target + " left, no progress for 30 s",
                  "see 'tessera gpus' and the daemon's log");
    std::this_thread::sleep_for(kAskAgain);
  }
}

}  // namespace

EvictionStanding StandingOf(const Json& evictions, const Json& processes) {
  EvictionStanding standing;
  for (const Json& eviction : evictions) {
    const auto found = std::ranges::find_if(processes, [&](const Json& process) {
      return IntegerField(process, "pid") == IntegerField(eviction, "pid") &&
             IntegerField(process, "gpu") == IntegerField(eviction, "gpu");
    });
    if (found == processes.end()) continue;
    if (const std::uint64_t left = IntegerField(*found, "memory_evicting_bytes"); left > 0) {
      standing.left += left;
      continue;
    }
    if (const std::string error = TextField(*found, "evict_error"); !error.empty()) standing.error = error;
  }
  return standing;
}

bool Patience::Lasts(std::uint64_t left, Nanos now) {
  if (left < left_) ends_ = now + kPatience;
  left_ = left;
  return now < ends_;
}

Result<int> Evict(const Common& common, const std::vector<std::string>& targets, const std::string& keep) {
  const auto bytes = ParseSize(keep);
  if (!bytes) return std::unexpected(bytes.error());
  return AskForTargets(common, targets, {.verb = "evict", .body = {{"to_bytes", *bytes}}, .begins = "evictions"},
                       Await);
}

}  // namespace tessera::cli
