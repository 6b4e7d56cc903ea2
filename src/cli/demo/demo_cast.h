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

// The demo's programs, each in its vGPU, and their waiting for one another.
class DemoCast {
 public:
  explicit DemoCast(const DemoStage& stage) : stage_(stage) {}

  // Makes the vGPU `name` with `settings` (fields of the API). While there is one, the stage's daemon stays.
  Result<void> Make(const std::string& name, client::Json settings);
  // Starts a tenant with `arguments` in the vGPU `name`. Both are there until Dismiss.
  Result<DemoTenant*> Enter(const std::string& name, const std::vector<std::string>& arguments);
  // Starts a tenant beside Tessera: on the GPU as it is. It may end as it likes.
  Result<DemoTenant*> EnterWithoutTessera(const std::string& name, const std::vector<std::string>& arguments);
  // Changes a vGPU, also while its tenant runs.
  Result<void> Set(const std::string& name, const client::Json& settings) const;
  // What the daemon says about a vGPU.
  Result<client::Json> Ask(const std::string& name) const;

  // Listens to the tenants until `until()` holds, asking again whenever one said something and at least every 50 ms.
  // EINTR when the user wants to stop, EIO when a tenant ended before its time, ETIMEDOUT after `limit`.
  template <typename Condition>
  Result<void> Wait(Nanos limit, Condition until) {
    const Nanos deadline = MonotonicNow() + limit;
    while (!until()) {
      if (auto heard = Listen(deadline); !heard) return heard;
    }
    return {};
  }

  // Ends all tenants' work and waits until they have verified it.
  Result<void> Finish();
  // Kills what still runs and removes the vGPUs.
  void Dismiss();

 private:
  Result<void> Listen(Nanos deadline);
  Result<DemoTenant*> Start(const std::string& name, std::vector<std::string> arguments, const Variables& variables);

  const DemoStage& stage_;
  std::list<DemoTenant> tenants_;
};

// From now on SIGINT and SIGTERM end Wait instead of the process.
void CatchInterrupts();

}  // namespace tessera::cli
