#pragma once

#include <memory>

#include "base/result.h"

namespace tessera::channel {

// An open file of /dev/nvidiactl. RM knows its clients by the file that made them.
class RmFile {
 public:
  virtual ~RmFile() = default;

  // ioctl(2). RM's answer is in the argument's status; an error here is the system's: no such request.
  virtual Result<void> Call(unsigned long request, void* argument) = 0;
};

// The operating system as steering needs it; tests put a driver of their own in its place.
class RmSystem {
 public:
  virtual ~RmSystem() = default;

  // A file for clients of our own. ENODEV: no NVIDIA driver, EACCES: not for this user.
  virtual Result<std::unique_ptr<RmFile>> OpenControl() = 0;

  // Keeps every /dev/nvidiaN open that this user may open, as long as this object lives: the driver attaches a GPU
  // while somebody has it open, and knows nothing of those that are not attached. ENODEV if there is none.
  virtual Result<void> AttachGpus() = 0;

  // The file behind descriptor `fd` of the process of a pidfd, to be destroyed soon: it keeps what that file owns.
  // ESRCH: the process is gone. EBADF: it has no such descriptor any more, or it is no /dev/nvidiactl. EPERM.
  virtual Result<std::unique_ptr<RmFile>> Borrow(int process_fd, int fd) = 0;
};

std::unique_ptr<RmSystem> MakeRmSystem();

}  // namespace tessera::channel
