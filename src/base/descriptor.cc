#include "base/descriptor.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>

#include "base/mutex.h"

namespace tessera {
namespace {

// A file's status without asking its file system (statx(2), AT_STATX_DONT_SYNC).
std::optional<struct statx> Look(int fd) {
  struct statx status;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) != 0) return std::nullopt;
  return status;
}

bool OnOneDevice(const std::optional<struct statx>& a, const std::optional<struct statx>& b) {
  return a && b && a->stx_dev_major == b->stx_dev_major && a->stx_dev_minor == b->stx_dev_minor;
}

// All memory files of a kernel are on one device, and all that have no file on another. Made at the start: later there
// may be no descriptor left.
const std::optional<struct statx> a_memory = Look(UniqueFd(memfd_create("tessera", MFD_CLOEXEC)).Get());
const std::optional<struct statx> an_event = Look(UniqueFd(eventfd(0, EFD_CLOEXEC)).Get());

std::atomic<int> closers{0};

// The thread that closes devices, and its queue. Never destroyed: it may be at work while the process exits.
class DeviceCloser {
 public:
  static DeviceCloser& Instance() {
    static auto* const closer = new DeviceCloser;
    return *closer;
  }

  // False: there is no thread.
  bool Take(int fd) {
    const MutexLock lock(mutex_);
    if (pid_ != getpid() && !Start()) return false;
    waiting_.push_back(fd);
    news_.NotifyOne();
    return true;
  }
  std::size_t Waiting() {
    const MutexLock lock(mutex_);
    return waiting_.size();
  }

 private:
  // Also in a forked child, which has no thread of its parent's; what waits there is the parent's to close.
  bool Start() TESSERA_REQUIRES(mutex_) {
    try {
      std::thread([this] { Run(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    pid_ = getpid();
    return true;
  }

  void Run() {
    pthread_setname_np(pthread_self(), "tessera-close");
    for (;;) {
      int fd;
      {
        const MutexLock lock(mutex_);
        while (waiting_.empty()) news_.Wait(mutex_);
        fd = waiting_.front();
        waiting_.pop_front();
      }
      close(fd);
    }
  }

  Mutex mutex_;
  CondVar news_;
  std::deque<int> waiting_ TESSERA_GUARDED_BY(mutex_);
  pid_t pid_ TESSERA_GUARDED_BY(mutex_) = 0;  // whose thread there is
};

}  // namespace

bool IsPrompt(int fd) {
  const auto status = Look(fd);
  return status && (S_ISCHR(status->stx_mode) || OnOneDevice(status, a_memory) || OnOneDevice(status, an_event));
}

void CloseElsewhere(UniqueFd fd) {
  const int file = fd.Release();
  if (closers.fetch_add(1) < kMostClosers) {
    try {
      std::thread([file] {
        close(file);
        --closers;
      }).detach();
      return;
    } catch (const std::system_error&) {
      // No more threads.
    }
  }
  --closers;
}

void CloseDevice(UniqueFd fd) {
  if (!fd) return;
  const auto status = Look(fd.Get());
  if (!status || !S_ISCHR(status->stx_mode)) return;  // closed here, at once
  const int device = fd.Release();
  if (!DeviceCloser::Instance().Take(device)) close(device);
}

bool CanCloseNoMore() { return closers >= kMostClosers || DeviceCloser::Instance().Waiting() >= kMostToClose; }

void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace tessera
