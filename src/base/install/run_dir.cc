#include "base/install/run_dir.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/install/peer.h"
#include "base/unique_fd.h"

namespace tessera {
namespace {

const std::string kElsewhere = "choose another directory with --run-dir";

// Not stat(2), which the C library of older systems has by another name: the shim carries this code.
constexpr unsigned kFields = STATX_TYPE | STATX_MODE | STATX_UID;

std::string NumberOf(uid_t user) { return std::to_string(user); }

// A walk from the root (or from the working directory) to a folder, of which each part is opened by itself. So another
// user can neither have made a part nor put a link in its place.
class Walk {
 public:
  explicit Walk(std::string path) : rest_(std::move(path)) { Restart(); }

  // The folder that holds the last part, and the last part's name; links among the others are followed.
  Result<void> ToParent() {
    for (;;) {
      std::string name = Next();
      if (rest_.find_first_not_of('/') == std::string::npos) {
        name_ = std::move(name);
        return {};
      }
      if (auto entered = Enter(name, false); !entered) return entered;
    }
  }
  // All of it.
  Result<void> ToEnd() {
    for (std::string name = std::move(name_); !name.empty(); name = Next()) {
      const bool last = rest_.find_first_not_of('/') == std::string::npos;
      if (auto entered = Enter(name, last); !entered) return entered;
    }
    return {};
  }

  int At() const { return at_.Get(); }
  const std::string& Name() const { return name_; }

 private:
  void Restart() {
    const bool absolute = rest_.starts_with('/');
    at_.Reset(open(absolute ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    so_far_ = absolute ? "" : ".";
  }

  std::string Next() {
    const auto begin = rest_.find_first_not_of('/');
    if (begin == std::string::npos) return std::exchange(rest_, {}), std::string();
    const auto end = std::min(rest_.find('/', begin), rest_.size());
    std::string name = rest_.substr(begin, end - begin);
    rest_.erase(0, end);
    return name;
  }

  Result<void> Enter(const std::string& name, bool last) {
    if (name.empty() || name == ".") return {};
    const std::string path = so_far_ + "/" + name;
    struct statx found{};
    if (statx(at_.Get(), name.c_str(), AT_SYMLINK_NOFOLLOW, kFields, &found) != 0)
      return FailErrno("cannot examine " + path, kElsewhere);
    if (S_ISLNK(found.stx_mode)) return Follow(name, path, found.stx_uid);
    if (!S_ISDIR(found.stx_mode)) return Fail(ENOTDIR, path + " is not a directory", kElsewhere);
    UniqueFd next(openat(at_.Get(), name.c_str(), O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC));
    if (!next || statx(next.Get(), "", AT_EMPTY_PATH, kFields, &found) != 0)
      return FailErrno("cannot open " + path, kElsewhere);
    if (!IsTrustedUser(found.stx_uid))
      return Fail(EPERM, path + " belongs to another user (" + NumberOf(found.stx_uid) + ")", kElsewhere);
    // In a sticky folder, as /tmp, nobody removes what is another's. A group's members may be trusted with the others.
    const mode_t writers = last ? S_IWGRP | S_IWOTH : S_IWOTH;
    if ((found.stx_mode & writers) != 0 && (last || (found.stx_mode & S_ISVTX) == 0))
      return Fail(EPERM, path + " is writable by other users", "chmod go-w " + path);
    at_ = std::move(next);
    so_far_ = path;
    return {};
  }

  Result<void> Follow(const std::string& name, const std::string& path, uid_t owner) {
    constexpr int kMostLinks = 40;  // as the kernel
    if (!IsTrustedUser(owner))
      return Fail(EPERM, path + " is a link of another user (" + NumberOf(owner) + ")", kElsewhere);
    if (++links_ > kMostLinks) return Fail(ELOOP, path + " leads through too many links", kElsewhere);
    char target[PATH_MAX];
    const ssize_t length = readlinkat(at_.Get(), name.c_str(), target, sizeof target);
    if (length < 0) return FailErrno("cannot read the link " + path, kElsewhere);
    rest_ = std::string(target, static_cast<std::size_t>(length)) + "/" + rest_;
    if (rest_.starts_with('/')) Restart();
    return {};
  }

  std::string rest_;    // not entered yet
  std::string so_far_;  // where it is
  std::string name_;    // the last part, after ToParent
  UniqueFd at_;
  int links_ = 0;
};

}  // namespace

std::string RunDir(const std::string& flag, bool soft) {
  if (!flag.empty()) return flag;
  if (const char* set = std::getenv("TESSERA_RUN_DIR"); set && *set) return set;
  return DefaultRunDir(soft);
}

std::string DefaultRunDir(bool soft) {
  std::string path;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (geteuid() == 0) {
    path = "/run/tessera";
  } else if (runtime && *runtime) {
    path = std::string(runtime) + "/tessera";
  } else {
    path = "/tmp/tessera-" + std::to_string(geteuid());
  }
  return soft ? path + "-soft" : path;
}

Result<void> PrepareRunDir(const std::string& path) {
  Walk walk(path);
  if (auto there = walk.ToParent(); !there) return there;
  if (mkdirat(walk.At(), walk.Name().c_str(), 0755) != 0 && errno != EEXIST)
    return FailErrno("cannot make " + path, kElsewhere);
  if (auto there = walk.ToEnd(); !there) return there;
  struct statx found{};
  if (statx(walk.At(), "", AT_EMPTY_PATH, kFields, &found) != 0) return FailErrno("cannot examine " + path, kElsewhere);
  if (found.stx_uid != geteuid())
    return Fail(EPERM, path + " belongs to another user (" + NumberOf(found.stx_uid) + ")", kElsewhere);
  if (faccessat(walk.At(), ".", W_OK | X_OK, AT_EACCESS) != 0) return FailErrno("cannot write to " + path, kElsewhere);
  return {};
}

Result<void> CheckRunDir(const std::string& path) {
  if (const char* set = std::getenv("TESSERA_RUN_DIR"); set && path == set) return {};
  if (path != DefaultRunDir(false) && path != DefaultRunDir(true)) return {};
  Walk walk(path);
  auto there = walk.ToParent();
  if (there) there = walk.ToEnd();
  if (!there && there.error().code == ENOENT) return {};
  return there;
}

}  // namespace tessera
