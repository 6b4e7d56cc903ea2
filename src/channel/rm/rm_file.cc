#include "channel/rm/rm_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/unique_fd.h"
#include "channel/rm/driver_abi.h"

namespace tessera::channel {
namespace {

class OpenFile : public RmFile {
 public:
  explicit OpenFile(UniqueFd fd) : fd_(std::move(fd)) {}
  Result<void> Call(unsigned long request, void* argument) override {
    if (ioctl(fd_.Get(), request, argument) != 0) return FailErrno("a request to /dev/nvidiactl");
    return {};
  }

 private:
  UniqueFd fd_;
};

// A duplicate of a process's. Its owner may have ended meanwhile: then this is the last one, whose close frees all that
// the process had.
class BorrowedFile : public RmFile {
 public:
  explicit BorrowedFile(UniqueFd fd) : fd_(std::move(fd)) {}
  ~BorrowedFile() override { CloseDevice(std::move(fd_)); }
  Result<void> Call(unsigned long request, void* argument) override {
    if (ioctl(fd_.Get(), request, argument) != 0) return FailErrno("a request to /dev/nvidiactl");
    return {};
  }

 private:
  UniqueFd fd_;
};

// Without asking a file system for news: a file of a process may lie on one that never answers (FUSE).
bool IsControlDevice(int fd) {
  struct statx status = {};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) != 0) return false;
  return S_ISCHR(status.stx_mode) && status.stx_rdev_major == abi::kMajor &&
         status.stx_rdev_minor == abi::kControlMinor;
}

// "nvidia0", but not "nvidiactl" and "nvidia-uvm".
bool IsGpuName(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return false;
  for (const char c : name.substr(kPrefix.size())) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
  }
  return true;
}

class Machine : public RmSystem {
 public:
  Result<std::unique_ptr<RmFile>> OpenControl() override {
    UniqueFd fd(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
    if (!fd) {
      const bool missing = errno == ENOENT || errno == ENXIO || errno == ENODEV;
      if (missing) return Fail(ENODEV, "there is no NVIDIA driver: /dev/nvidiactl does not open");
      return FailErrno("open /dev/nvidiactl", "give this user access to the GPUs");
    }
    if (!IsControlDevice(fd.Get())) return Fail(ENODEV, "/dev/nvidiactl is not the NVIDIA driver's");
    return std::make_unique<OpenFile>(std::move(fd));
  }

  Result<void> AttachGpus() override {
    DIR* directory = opendir("/dev");
    if (directory == nullptr) return FailErrno("look into /dev");
    while (const dirent* entry = readdir(directory)) {
      if (!IsGpuName(entry->d_name)) continue;
      UniqueFd fd(open((std::string("/dev/") + entry->d_name).c_str(), O_RDWR | O_CLOEXEC));
      if (fd) gpus_.push_back(std::move(fd));
    }
    closedir(directory);
    if (gpus_.empty()) return Fail(ENODEV, "no GPU of /dev/nvidia0 and up opens", "give this user access to the GPUs");
    return {};
  }

  Result<std::unique_ptr<RmFile>> Borrow(int process_fd, int fd) override {
    UniqueFd file(static_cast<int>(syscall(SYS_pidfd_getfd, process_fd, fd, 0)));
    if (!file) {
      const char* hint =
          errno == ENOSYS ? "use Linux 5.6 or later; the gates divide the time meanwhile" : "run the daemon as root";
      return FailErrno("borrow a process's /dev/nvidiactl", hint);
    }
    if (!IsControlDevice(file.Get())) return Fail(EBADF, "a process's descriptor is not /dev/nvidiactl any more");
    return std::make_unique<BorrowedFile>(std::move(file));
  }

 private:
  std::vector<UniqueFd> gpus_;
};

}  // namespace

std::unique_ptr<RmSystem> MakeRmSystem() { return std::make_unique<Machine>(); }

}  // namespace tessera::channel
