#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tessera {

// A program of this installation's lib/tessera, to be started by another program of it.
struct OwnProgram {
  std::string name;
  std::vector<std::string> arguments;      // without its name
  std::vector<std::pair<int, int>> files;  // descriptors of the caller, and their numbers in the program. It inherits
                                           // others only if they lack FD_CLOEXEC
  std::vector<std::string> without;        // environment variables that it does not inherit, beside those of others
                                           // (base/install/environment.h)
};

// Starts it with no signal blocked (a daemon blocks those that it reads from descriptors). The caller waits for it.
// Errors: those of posix_spawn(3), with the path that was tried.
Result<pid_t> Spawn(const OwnProgram& program);

}  // namespace tessera
