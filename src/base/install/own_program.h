#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tessera {

// A program that a program of this installation starts.
struct OwnProgram {
  std::string name;                        // in lib/tessera, or an absolute path
  std::vector<std::string> arguments;      // without its name
  std::vector<std::pair<int, int>> files;  // descriptors of the caller, and their numbers in the program. It inherits
                                           // others only if they lack FD_CLOEXEC
  std::vector<std::string> without;        // environment variables that it does not inherit, beside those of others
                                           // (base/install/environment.h),
  std::vector<std::string> with;           // and "NAME=value" that it gets
  // It runs as this user, in the user's groups, if that is not the caller's own; for root alone. Needs setpriv(1).
  std::optional<uid_t> user;
  bool lasts = false;  // it is to outlive its starter: base/install/lasting_groups.h
};

// Starts it with no signal blocked (a daemon blocks those that it reads from descriptors). The caller waits for it.
// Errors: those of posix_spawn(3), with the path that was tried.
Result<pid_t> Spawn(const OwnProgram& program);

}  // namespace tessera
