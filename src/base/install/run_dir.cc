#include "base/install/run_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace tessera {

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
  const std::string hint = "choose another directory with --run-dir";
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("cannot make " + path, hint);
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return FailErrno("cannot examine " + path, hint);
  if (!S_ISDIR(st.st_mode)) return Fail(ENOTDIR, path + " is not a directory", hint);
  if (st.st_uid != geteuid()) return Fail(EPERM, path + " belongs to another user", hint);
  if (st.st_mode & (S_IWGRP | S_IWOTH)) return Fail(EPERM, path + " is writable by other users", "chmod go-w " + path);
  if (access(path.c_str(), W_OK | X_OK) != 0) return FailErrno("cannot write to " + path, hint);
  return {};
}

}  // namespace tessera
