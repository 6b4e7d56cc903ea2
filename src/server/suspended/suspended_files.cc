#include "server/suspended/suspended_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "server/devices/gpu_driver.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr const char* kHint = "suspend.dir names the folder for programs that are suspended to a file";

std::string NameOf(const ProcessName& program, const wire::Uuid& gpu) {
  return fmt::format("{}-{}-{}", program.pid, program.start, FormatUuid(gpu));
}

// Nothing for files of another kind.
std::optional<ProcessName> OwnerOf(const std::string& name) {
  int pid = 0;
  unsigned long long start = 0;
  if (std::sscanf(name.c_str(), "%d-%llu-GPU-", &pid, &start) != 2 || pid <= 0) return {};
  return ProcessName{pid, start};
}

Result<void> CheckFolder(const std::string& folder) {
  struct stat status{};
  if (lstat(folder.c_str(), &status) != 0) return FailErrno("look at " + folder, kHint);
  if (!S_ISDIR(status.st_mode)) return Fail(ENOTDIR, folder + " is no folder", kHint);
  if (status.st_uid != geteuid() || (status.st_mode & 077) != 0)
    return Fail(EPERM, folder + " is another user's, or others may enter it", "chown and chmod 700 it");
  return {};
}

}  // namespace

SuspendedFiles::SuspendedFiles(std::string folder) : folder_(std::move(folder)) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, none)) {
    const std::string name = entry.path().filename();
    if (OwnerOf(name)) names_.insert(name);
  }
  RemoveEnded();
}

std::string SuspendedFiles::PathOf(const ProcessName& program, const wire::Uuid& gpu) const {
  return folder_ + "/" + NameOf(program, gpu);
}

Result<UniqueFd> SuspendedFiles::Make(const ProcessName& program, const wire::Uuid& gpu) {
  if (program.start == 0) return Fail(ESRCH, fmt::format("nobody knows when process {} was started", program.pid));
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("make the folder " + folder_, kHint);
  if (auto good = CheckFolder(folder_); !good) return std::unexpected(good.error());
  const std::string path = PathOf(program, gpu);
  UniqueFd file(open(path.c_str(), O_CREAT | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return FailErrno("make the file " + path, kHint);
  names_.insert(NameOf(program, gpu));
  return file;
}

UniqueFd SuspendedFiles::Open(const ProcessName& program, const wire::Uuid& gpu) const {
  auto file = Finished(program, gpu);
  return file ? std::move(*file) : UniqueFd();
}

UniqueFd SuspendedFiles::Take(const ProcessName& program, const wire::Uuid& gpu) {
  auto file = Finished(program, gpu);
  if (file) return std::move(*file);
  if (file.error().code == ENODATA) Remove(program, gpu);
  if (file.error().code != ENODATA && file.error().code != ENOENT) log::Error("{}", file.error().Text());
  return {};
}

Result<UniqueFd> SuspendedFiles::Finished(const ProcessName& program, const wire::Uuid& gpu) const {
  if (!names_.contains(NameOf(program, gpu))) return Fail(ENOENT, "there is no file of this program");
  const std::string path = PathOf(program, gpu);
  UniqueFd file(open(path.c_str(), O_NOFOLLOW | O_RDWR | O_CLOEXEC));
  if (!file) return FailErrno("open the file " + path, kHint);
  std::uint64_t magic = 0;
  const ssize_t read = pread(file.Get(), &magic, sizeof magic, 0);
  if (read < 0) return FailErrno("read the file " + path, kHint);
  if (read < static_cast<ssize_t>(sizeof magic) || magic == 0) return Fail(ENODATA, "it was not finished");
  return file;
}

void SuspendedFiles::Remove(const ProcessName& program, const wire::Uuid& gpu) {
  if (names_.erase(NameOf(program, gpu)) == 0) return;
  const std::string path = PathOf(program, gpu);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) log::Warn("{}", FailErrno("remove " + path).error().Text());
}

void SuspendedFiles::RemoveEnded() {
  std::erase_if(names_, [this](const std::string& name) {
    const ProcessName owner = *OwnerOf(name);
    if (ProcessStart(owner.pid).value_or(0) == owner.start) return false;
    if (unlink((folder_ + "/" + name).c_str()) == 0)
      log::Info("process {} has ended: the file that it was suspended to is removed", owner.pid);
    return true;
  });
}

}  // namespace tessera::server
