#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "face/files/file_mount.h"

namespace tessera::face {
namespace {

// Decodes a path of /proc/self/mountinfo, which has blanks and the like in octal.
std::string AsListed(const std::string& path) {
  std::string escaped;
  for (const char c : path) {
    switch (c) {
      case ' ':
        escaped += "\\040";
        break;
      case '\t':
        escaped += "\\011";
        break;
      case '\n':
        escaped += "\\012";
        break;
      case '\\':
        escaped += "\\134";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// The type of the topmost file system that is mounted at `path`, which is absolute and has no links.
std::optional<std::string> MountedAt(const std::string& path) {
  const std::string wanted = AsListed(path);
  std::optional<std::string> type;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, where, word;
    words >> id >> parent >> device >> root >> where;
    if (where != wanted) continue;
    while (words >> word && word != "-") continue;  // optional fields end so (proc(5))
    words >> word;
    type = word;
  }
  return type;
}

// A user may unmount only what the FUSE helper mounted.
bool UnmountByHelper(const std::string& path) {
  const char* arguments[] = {"fusermount3", "-u", "-q", "-z", "--", path.c_str(), nullptr};
  pid_t child = 0;
  if (posix_spawnp(&child, arguments[0], nullptr, nullptr, const_cast<char* const*>(arguments), environ) != 0)
    return false;
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

Result<void> RemoveStaleMount(const std::string& path) {
  constexpr int kMost = 16;  // stacked mounts, by daemons that could not detect the ones below
  for (int i = 0; i < kMost; ++i) {
    const auto type = MountedAt(path);
    if (!type) return {};
    if (*type != "fuse.tessera") return Fail(EBUSY, "another file system (" + *type + ") is mounted at " + path);
    if (umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) continue;
    if (geteuid() == 0 || !UnmountByHelper(path))
      return Fail(EBUSY, "cannot unmount what an earlier daemon mounted at " + path, "umount -l " + path);
  }
  return Fail(EBUSY, "something keeps mounting a file system at " + path);
}

}  // namespace tessera::face
