#pragma once

#include <list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/demo_stage.h"
#include "cli/demo_tenant.h"

namespace tessera::cli {

// The demo's programs, each in its vGPU, and their waiting for one another.
class DemoCast {
 public:
  explicit DemoCast(const DemoStage& stage) : stage_(stage) {}

  // Makes the vGPU `name` with `settings` (fields of the API) and starts a tenant with `arguments` in it. The reference
  // is good until Dismiss.
  Result<DemoTenant*> Enter(const std::string& name, nlohmann::json settings,
                            const std::vector<std::string>& arguments);
  // Changes a vGPU, also while its tenant runs.
  Result<void> Set(const std::string& name, const nlohmann::json& settings) const;
  // What the daemon says about a vGPU.
  Result<nlohmann::json> Ask(const std::string& name) const;

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

  // Ends all tenants' work and waits until they have verified it; removes the vGPUs.
  Result<void> Finish();
  void Dismiss();

  std::list<DemoTenant>& tenants() { return tenants_; }

 private:
  Result<void> Listen(Nanos deadline);

  const DemoStage& stage_;
  std::list<DemoTenant> tenants_;
};

// From now on SIGINT and SIGTERM end Wait instead of the process.
void CatchInterrupts();

}  // namespace tessera::cli
