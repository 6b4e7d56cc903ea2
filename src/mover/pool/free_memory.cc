#include "mover/pool/free_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/size.h"

namespace tessera::mover {
namespace {

// A line "MemAvailable:   123 kB" of /proc/meminfo, in bytes.
std::optional<std::uint64_t> MemoryField(const std::string& root, const std::string& name) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream words(line.substr(name.size() + 1));
    std::uint64_t kibibytes = 0;
    if (words >> kibibytes) return kibibytes * kKiB;
  }
  return {};
}

// A file that holds one number; nothing if it says "max".
std::optional<std::uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return {};
}

// Bytes that a control group and those above it, up to `mount`, may still use. `limit` and `current` name their files.
std::uint64_t LeftIn(const std::string& mount, std::string group, const char* limit, const char* current) {
  std::uint64_t left = UINT64_MAX;
  while (true) {
    const auto most = NumberIn(mount + group + "/" + limit);
    const auto used = NumberIn(mount + group + "/" + current);
    if (most && used) left = std::min(left, *most - std::min(*most, *used));
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) return left;
    group.resize(slash);
  }
}

// /proc/self/cgroup has lines "0::/path" (v2) and "5:memory:/path" (v1). Inside a container the path may be that on the
// host, which is not to be found here: the group's own files are then those at the mount itself.
std::uint64_t LeftInGroups(const std::string& root) {
  std::uint64_t left = UINT64_MAX;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    if (controllers == ",,") {
      left = std::min(left, LeftIn(root + "/sys/fs/cgroup", group, "memory.max", "memory.current"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left,
                      LeftIn(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return left;
}

}  // namespace

std::uint64_t DefaultFloor(const std::string& root) {
  return std::max(MemoryField(root, "MemTotal").value_or(0) / 20, kGiB);
}

std::uint64_t FreeMemory(const std::string& root) {
  return std::min(MemoryField(root, "MemAvailable").value_or(UINT64_MAX), LeftInGroups(root));
}

// "some avg10=1.53 avg60=..."
std::uint32_t MemoryPressure(const std::string& root) {
  std::ifstream file(root + "/proc/pressure/memory");
  for (std::string kind, average; file >> kind >> average; std::getline(file, kind)) {
    double percent = 0;
    if (kind == "some" && std::sscanf(average.c_str(), "avg10=%lf", &percent) == 1 && percent >= 0 && percent <= 100)
      return static_cast<std::uint32_t>(percent * 100);
  }
  return 0;
}

Result<void> MachineMemory::MayTake(std::uint64_t bytes) const {
  if (free >= bytes && free - bytes >= floor) return {};
  return Fail(ENOMEM, "host memory: " + FormatSize(free) + " free, of which the swap pool leaves " + FormatSize(floor));
}

std::uint64_t MachineMemory::MostFor(std::uint64_t size) const {
  if (free == UINT64_MAX) return free;
  return size + free - std::min(size + free, floor);
}

}  // namespace tessera::mover
