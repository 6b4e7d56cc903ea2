#pragma once

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"
#include "soft/mps/mps_log.h"
#include "soft/shared/process_id.h"

namespace tessera::soft {

// A child process that is an MPS server: attached to the soft GPUs, and otherwise idle. It ends with the object, or
// with the process that made it. Of one thread; the process must have no other when Start forks.
class MpsServerProcess {
 public:
  // Returns once the server takes clients. EPERM if it may not be of this user; ECHILD if it ended at once, having told
  // the reason on standard error.
  static Result<MpsServerProcess> Start(uid_t user, double percentage, const MpsLog& log);
  ~MpsServerProcess() { Stop(); }
  MpsServerProcess(MpsServerProcess&& other) noexcept;
  MpsServerProcess& operator=(MpsServerProcess&& other) noexcept;

  const ProcessId& process() const { return process_; }
  pid_t pid() const { return pid_; }
  uid_t user() const { return user_; }
  // Collects it if it has ended by itself.
  bool Ended();
  // Ends it, clients or not, and waits. No-op if it has ended.
  void Stop();

 private:
  MpsServerProcess(pid_t pid, uid_t user, const ProcessId& process, UniqueFd life)
      : pid_(pid), user_(user), process_(process), life_(std::move(life)) {}

  pid_t pid_;  // 0: it has ended
  uid_t user_;
  ProcessId process_;
  UniqueFd life_;  // the server lives for as long as this pipe is open
};

}  // namespace tessera::soft
