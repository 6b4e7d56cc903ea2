// Facts about a process from /proc.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <fstream>
#include <string>

namespace tessera::server {

// The name of its command; empty: it has ended.
inline std::string CommandOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

inline uid_t OwnerOf(pid_t pid) {
  struct stat status{};
  return stat(fmt::format("/proc/{}", pid).c_str(), &status) == 0 ? status.st_uid : 0;
}

}  // namespace tessera::server
