#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::cli {

// A program that enters the kernel gate.
struct GuardedProgram {
  std::string run_dir;             // of the daemon that will check its calls
  std::vector<std::string> vgpus;  // names, at most one per GPU
  std::string name;                // for people
};

// Puts this process behind the daemon's kernel gate (`tessera run --enforce kernel`). From here on its calls of the
// kernel driver that allocate memory or steer channels wait for the daemon's decision, and so do those of the program
// that it becomes and of its children. To be called last before exec; it cannot be undone. One thread.
//
// `install_filter` installs the filter and returns its listener (guard::InstallFilter). It is called after the daemon
// has agreed, and on return the daemon has the listener, so no call waits without a supervisor. Blocks for at most
// kGuardSeconds a step. ECONNREFUSED if no daemon answers, ETIMEDOUT if it accepts and does not answer, ECONNRESET or
// EPROTO if it has no kernel gate; if it refuses, its own code and message.
Result<void> EnterKernelGate(const GuardedProgram& program, const std::function<Result<UniqueFd>()>& install_filter);

inline constexpr int kGuardSeconds = 10;

}  // namespace tessera::cli
