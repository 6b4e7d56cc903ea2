#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/access/caller.h"

namespace tessera::server {

// What a user may have in all, over all of the user's vGPUs and GPUs. A bound that is absent comes from the default
// quota.
struct QuotaBounds {
  static constexpr std::uint64_t kNone = UINT64_MAX;  // "max"

  // Promised GPU memory: a size, a percentage of the memory of all GPUs together, or "max".
  std::optional<std::string> memory;
  // Host memory that vGPUs may fill: likewise, percentages of all that the daemon may take.
  std::optional<std::string> swap;
  std::optional<double> compute;  // requests, percent of all GPUs' time together: 0 to 100
  std::optional<std::uint64_t> vgpus, processes, sessions;
  // Of each vGPU: the first class that may be asked for, and the highest weight.
  std::optional<std::uint64_t> priority, weight;
};

// A section [quota.NAME] of the configuration.
struct Quota {
  std::string name;  // "default", a user's name or number, or "@" and a group's
  std::optional<uid_t> user;
  std::optional<gid_t> group;
  unsigned line = 0;  // of the configuration
  QuotaBounds bounds;
};

// The bounds of one user, none of them absent, and the name of the quota that they are from. At first those of users of
// whom the configuration says nothing.
struct UserQuota {
  std::string name = "default";
  std::string memory = "50%", swap = "max";
  double compute = 50;
  std::uint64_t vgpus = 16, processes = 64, sessions = 512, priority = 8, weight = 100;

  // Takes over the bounds that are there.
  void Apply(const QuotaBounds& bounds);
};

// The quota of a caller, in which the user's own comes first, then the first of a group of the caller's in the list's
// order, then the default. None for operators.
std::optional<UserQuota> QuotaFor(const Caller& caller, const std::vector<Quota>& quotas);

// The whole of which bounds in percent are parts, in bytes.
struct QuotaBase {
  std::uint64_t memory = 0, swap = 0;
  std::size_t gpus = 1;
};

// Sum of the claims of a user's vGPUs. Bytes; percent of one GPU, so that 200 is two GPUs.
struct QuotaClaims {
  std::uint64_t memory = 0, swap = 0;
  double compute = 0;
  std::uint64_t vgpus = 0;
};

// A vGPU as it is asked for. `swap` absent: no bound of its own was asked for.
struct QuotaWish {
  std::uint64_t memory = 0;
  std::optional<std::uint64_t> swap;
  double compute = 0;
  std::uint64_t priority = 0, weight = 0;
  bool first = false;  // a latency goal: the vGPU goes before others of its priority
};

// Whether a vGPU may be as `wish` says beside the user's others, or an EDQUOT that names the quota, the bound, what is
// used and what was asked for. `before` is the vGPU as it is; null for a new one. A figure that does not grow is not
// refused.
Result<void> CheckQuota(const UserQuota& quota, const QuotaBase& base, const QuotaClaims& others, const QuotaWish& wish,
                        const QuotaWish* before);

// The host memory that a vGPU gets that asks for no bound: an equal part for each vGPU that the user may have, at most
// what is left. None where the quota has no bound for it.
std::optional<std::uint64_t> SwapShare(const UserQuota& quota, const QuotaBase& base, const QuotaClaims& others);

// Whether a user who has `used` of them may have one more. `what`: "processes", "sessions". EDQUOT as above.
Result<void> CheckQuotaCount(const UserQuota& quota, const char* what, std::uint64_t most, std::uint64_t used);

}  // namespace tessera::server
