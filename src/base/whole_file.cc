#include "base/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "base/unique_fd.h"

namespace tessera {
namespace {

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// A device or a pipe, which must not become a file.
bool IsNoFile(const std::string& path) {
  struct stat about{};
  return stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
}

}  // namespace

Result<void> ReplaceFile(const std::string& path, const std::string& text, mode_t mode, const std::string& hint) {
  if (IsNoFile(path)) {
    const UniqueFd device(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!device || !WriteAll(device.Get(), text)) return FailErrno("cannot write " + path, hint);
    return {};
  }
  const std::string next = path + ".new";
  UniqueFd file(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!file) return FailErrno("cannot write " + next, hint);
  Result<void> replaced;
  if (!WriteAll(file.Get(), text) || fsync(file.Get()) != 0) {
    replaced = FailErrno("cannot write " + next, hint);
  } else if (rename(next.c_str(), path.c_str()) != 0) {
    replaced = FailErrno("cannot replace " + path, hint);
  }
  if (!replaced) {
    unlink(next.c_str());
    return replaced;
  }
  // The new name is on the disk only when its directory is.
  const std::size_t slash = path.rfind('/');
  const UniqueFd folder(
      open(slash == std::string::npos ? "." : path.substr(0, slash + 1).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || fsync(folder.Get()) != 0) return FailErrno("cannot bring " + path + " to the disk", hint);
  return {};
}

}  // namespace tessera
