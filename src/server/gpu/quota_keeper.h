#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "server/access/quota.h"
#include "server/gpu/vgpu_table.h"

namespace tessera::server {

// Holds users to their quotas: sums up what they have, and asks the rules of access/quota.h. Operators have none. Runs
// on the event loop's thread.
class QuotaKeeper {
 public:
  // Everything that is given outlives the keeper; `quotas` may change.
  QuotaKeeper(const std::vector<Quota>& quotas, const VGpuTable& table, const VGpuTable::Gpus& gpus)
      : quotas_(quotas), table_(table), gpus_(gpus) {}

  // Whether a vGPU of the caller may be as `spec` says. `before` is the vGPU as it is; null for a new one, which gets a
  // bound on host memory where the quota has one and `spec` has none. EDQUOT.
  Result<void> Admit(const Caller& caller, VGpuSpec& spec, const VGpu* before) const;
  // Whether the caller, who has so many spaces that last, may make one more: as many as vGPUs. EDQUOT.
  Result<void> AdmitSpace(const Caller& caller, std::uint64_t used) const;
  // Whether a program of the caller may use one GPU more. EDQUOT.
  Result<void> AdmitProcess(const Caller& caller) const;
  // Whether the caller, who has so many connections, may have one more. EDQUOT.
  Result<void> AdmitSession(const Caller& caller, std::uint64_t used) const;

 private:
  QuotaBase Base() const;
  QuotaClaims ClaimsOf(uid_t uid, std::string_view without) const;

  const std::vector<Quota>& quotas_;
  const VGpuTable& table_;
  const VGpuTable::Gpus& gpus_;
};

}  // namespace tessera::server
