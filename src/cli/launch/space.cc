#include "cli/launch/space.h"

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::BoolField;
using client::Json;
using client::NumberField;
using client::TextField;

namespace {

constexpr Nanos kUntilReady = 20 * kSecond;  // its MPS server may be starting
constexpr std::chrono::milliseconds kAskSpaceAgain(10);

}  // namespace

Result<void> EnterSpace(const ApiClient& client, const Json& vgpu, ProgramPlace& place) {
  const std::string name = TextField(vgpu, "space");
  if (name.empty()) return {};
  for (const Nanos until = MonotonicNow() + kUntilReady;;) {
    const auto space = client.Get("/v1/spaces/" + name);
    if (!space) return std::unexpected(space.error());
    const std::string state = TextField(*space, "state");
    if (state == "ready") {
      place.mps_pipes = TextField(*space, "pipe_directory");
      // Of SMs of its own the shim makes a green context, which the driver refuses beside a percentage.
      place.sm_limit_pct = BoolField(vgpu, "sm_reserved") ? 100 : NumberField(vgpu, "sm_limit_pct");
      return {};
    }
    if (MonotonicNow() >= until) {
      const std::string error = TextField(*space, "error");
      return Fail(ETIMEDOUT, "space " + name + " is not ready (" + state + (error.empty() ? "" : ": " + error) + ")",
                  "see 'tessera space show " + name + "', and 'tessera doctor'");
    }
    std::this_thread::sleep_for(kAskSpaceAgain);
  }
}

}  // namespace tessera::cli
