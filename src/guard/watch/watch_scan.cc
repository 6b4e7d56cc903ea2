#include "guard/watch/watch_scan.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace tessera::guard {
namespace {

namespace fs = std::filesystem;

std::optional<pid_t> PidOf(const fs::path& path) {
  const std::string name = path.filename();
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || end != name.data() + name.size() || pid <= 0) return {};
  return pid;
}

// By the link's text, because looking at the file itself may hang: it may be on a server that is gone. A container may
// have the device at another place.
bool HasDriverOpen(const fs::path& process) {
  std::error_code error;  // the process ended, or we may not look
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error)) {
    std::error_code closed;
    const fs::path target = fs::read_symlink(*fd, closed);
    if (!closed && target.filename() == "nvidiactl") return true;
  }
  return false;
}

}  // namespace

std::vector<pid_t> FindGpuProcesses(const std::string& proc) {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator process(proc, error), end; !error && process != end; process.increment(error))
    if (const auto pid = PidOf(process->path()); pid && HasDriverOpen(process->path())) found.push_back(*pid);
  std::ranges::sort(found);
  return found;
}

std::string ProcessName(pid_t pid, const std::string& proc) {
  std::ifstream file(fs::path(proc) / std::to_string(pid) / "comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace tessera::guard
