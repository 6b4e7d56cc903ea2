#include "base/install/state_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>

#include "base/install/run_dir.h"

namespace tessera {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string StateDir(const std::string& flag, const std::string& run_dir, bool soft) {
  if (!flag.empty()) return flag;
  if (run_dir != DefaultRunDir(soft)) return run_dir;
  const std::string name = soft ? "/tessera-soft" : "/tessera";
  if (geteuid() == 0) return "/var/lib" + name;
  std::string state = Variable("XDG_STATE_HOME");
  // A relative path is to be ignored (XDG Base Directory Specification).
  if (!state.starts_with('/')) state = Variable("HOME").empty() ? "" : Variable("HOME") + "/.local/state";
  char host[HOST_NAME_MAX + 1] = {};
  if (state.empty() || gethostname(host, sizeof host - 1) != 0) return run_dir;
  return state + name + "/" + host;
}

Result<void> PrepareStateDir(const std::string& path) {
  const std::string hint = "choose another directory with --state-dir";
  std::error_code error;
  const auto above = std::filesystem::path(path).parent_path();
  if (!above.empty()) std::filesystem::create_directories(above, error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("cannot make " + path, hint);
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return FailErrno("cannot examine " + path, hint);
  if (!S_ISDIR(st.st_mode)) return Fail(ENOTDIR, path + " is not a directory", hint);
  if (st.st_uid != geteuid()) return Fail(EPERM, path + " belongs to another user", hint);
  if (st.st_mode & (S_IWGRP | S_IWOTH)) return Fail(EPERM, path + " is writable by other users", "chmod go-w " + path);
  if (access(path.c_str(), W_OK | X_OK) != 0) return FailErrno("cannot write to " + path, hint);
  return {};
}

}  // namespace tessera
