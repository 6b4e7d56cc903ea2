#include "base/whole_file.h"

#include <fcntl.h>
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

}  // namespace

Result<void> ReplaceFile(const std::string& path, const std::string& text, mode_t mode, const std::string& hint) {
  const std::string next = path + ".new";
  UniqueFd file(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!file) return FailErrno("cannot write " + next, hint);
  Result<void> replaced;
  if (!WriteAll(file.Get(), text) || fsync(file.Get()) != 0) {
    replaced = FailErrno("cannot write " + next, hint);
  } else if (rename(next.c_str(), path.c_str()) != 0) {
    replaced = FailErrno("cannot replace " + path, hint);
  }
  if (!replaced) unlink(next.c_str());
  return replaced;
}

}  // namespace tessera
