#pragma once

#include <list>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/demo/demo_stage.h"
#include "cli/demo/demo_tenant.h"
#include "client/json.h"

namespace tessera::cli {

// The demo's programs, each in its vGPU.
class DemoCast {
 public:
  explicit DemoCast(const DemoStage& stage) : stage_(stage) {}

  // Makes the vGPU `name` with `settings` (fields of the API). The stage's daemon does not end while there is one.
  Result<void> Make(const std::string& name, client::Json settings);
  // Starts a tenant with `arguments` in the vGPU `name`; waits for its space, if it is in one. Both last until Dismiss.
  Result<DemoTenant*> Enter(const std::string& name, const std::vector<std::string>& arguments);
  // Starts a tenant without Tessera. It may fail.
  Result<DemoTenant*> EnterWithoutTessera(const std::string& name, const std::vector<std::string>& arguments);
  // Changes a vGPU, even while its tenant runs.
  Result<void> Set(const std::string& name, const client::Json& settings) const;
  // The daemon's report of a vGPU.
  Result<client::Json> Ask(const std::string& name) const;

  // Reads the tenants' output until `until()` holds, which is checked after each piece and at least every 50 ms. EINTR
  // if the user interrupts, EIO if a tenant ended too early, ETIMEDOUT after `limit`.
  template <typename Condition>
  Result<void> Wait(Nanos limit, Condition until) {
    const Nanos deadline = MonotonicNow() + limit;
    while (!until()) {
      if (auto heard = Listen(deadline); !heard) return heard;
    }
    return {};
  }

  // Tells all tenants to end, and waits until they have verified their results.
  Result<void> Finish();
  // Kills running tenants and removes the vGPUs.
  void Dismiss();

 private:
  Result<void> Listen(Nanos deadline);
  Result<DemoTenant*> Start(const std::string& name, std::vector<std::string> arguments, const Variables& variables);

  const DemoStage& stage_;
  std::list<DemoTenant> tenants_;
};

// Makes SIGINT and SIGTERM end Wait instead of the process.
void CatchInterrupts();

}  // namespace tessera::cli
