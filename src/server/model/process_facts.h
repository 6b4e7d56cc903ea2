// Facts about a process from /proc.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

namespace tessera::server {

// The name of its command; empty: it has ended.
inline std::string CommandOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

// No user has this number (-1 means "no change" to chown and setreuid).
inline constexpr uid_t kNoUser = static_cast<uid_t>(-1);

// The effective user of a process, also of one that has ended and was not waited for. None: it has ended. Not the owner
// of its folder in /proc: that is root where the process may not be traced, as after setuid (proc(5)).
inline std::optional<uid_t> OwnerOf(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    uid_t real = kNoUser, effective = kNoUser;
    if (std::sscanf(line.c_str(), "Uid: %u %u", &real, &effective) == 2) return effective;
  }
  return {};
}

}  // namespace tessera::server
