#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/access/caller.h"
#include "server/access/operation.h"

namespace tessera::server {

// A vGPU or process as the authority sees it.
struct Possession {
  std::string name;           // of the vGPU; of a process, its pid
  bool process = false;       // else a vGPU
  uid_t uid = 0;              // its owner
  std::optional<uid_t> host;  // of a process: the owner of its vGPU, who has the same rights
  bool for_everybody = false;
};

// The one place that decides who may do what; all faces ask it. Decides by AccessRules and keeps no state. Any thread.
class Authority {
 public:
  struct Terms {
    uid_t daemon = 0;                // the daemon's own user
    std::optional<gid_t> operators;  // the group of operators; none: there is none
    bool users = true;               // access.users: users who are not operators may use the API and the files
    bool totals = true;              // access.totals: they see the GPUs' totals
  };
  explicit Authority(Terms terms) : terms_(terms) {}

  const Terms& InForce() const { return terms_; }

  // Who a process of this user in these groups is.
  Caller Identify(uid_t uid, std::vector<gid_t> groups) const;
  // Who has shown the token, or is the daemon itself.
  Caller Operator() const { return {.role = Caller::Role::kOperator, .uid = terms_.daemon, .groups = {}}; }

  // Whether the caller may do that: EPERM for an operation that is for operators, EACCES without the token. ENOENT, in
  // the words for what is not there, for vGPUs and processes that the caller may not even see, so that names tell
  // nothing. `thing` is what the operation acts on; null for what acts on none.
  Result<void> Allowed(const Caller& caller, Operation operation, const Possession* thing = nullptr) const;

 private:
  const Terms terms_;
};

// The errors for what is not there.
Error NoSuchVGpu(const std::string& name);
Error NoSuchProcess(const std::string& pid);

}  // namespace tessera::server
