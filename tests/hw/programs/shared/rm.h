// Calls of NVIDIA's resource manager (RM) made by hand, past CUDA and past whatever is preloaded: what a hostile
// program can do. Layouts and numbers are those of src/channel/rm/driver_abi.h. C++20.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "channel/rm/driver_abi.h"

namespace abi = tessera::channel::abi;

// The result of a call: RM's status, or kNoCall and errno where the ioctl itself failed.
inline constexpr uint32_t kNoCall = 0xffff;

template <typename Request>
uint32_t RmCall(int fd, unsigned number, Request& request) {
  const unsigned long code = _IOC(_IOC_READ | _IOC_WRITE, abi::kIoctlType, number, sizeof request);
  if (syscall(SYS_ioctl, fd, code, &request) == 0) return request.status;
  fprintf(stderr, "ioctl %#x failed: errno %d\n", number, errno);
  return kNoCall;
}

inline uint32_t RmAlloc(int fd, uint32_t root, uint32_t parent, uint32_t& object, uint32_t cls, void* params,
                        uint32_t bytes) {
  abi::Alloc request = {};
  request.root = root;
  request.parent = parent;
  request.object = object;
  request.cls = cls;
  request.params = reinterpret_cast<uint64_t>(params);
  request.params_bytes = bytes;
  const uint32_t status = RmCall(fd, abi::kAlloc, request);
  if (status == abi::kOk) object = request.object;
  return status;
}

inline uint32_t RmControl(int fd, uint32_t client, uint32_t object, uint32_t command, void* params, uint32_t bytes) {
  abi::Control request = {};
  request.client = client;
  request.object = object;
  request.command = command;
  request.params = reinterpret_cast<uint64_t>(params);
  request.params_bytes = bytes;
  return RmCall(fd, abi::kControl, request);
}

inline uint32_t RmFree(int fd, uint32_t root, uint32_t parent, uint32_t object) {
  abi::Free request = {root, parent, object, 0};
  return RmCall(fd, abi::kFree, request);
}

// A client of our own with the first GPU's device and subdevice. Ends the program with 77 where there is no driver.
class RmClient {
 public:
  RmClient() : file_(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC)), gpu_(open("/dev/nvidia0", O_RDWR | O_CLOEXEC)) {
    if (file_ < 0 || gpu_ < 0) {
      printf("no NVIDIA driver: /dev/nvidiactl, /dev/nvidia0: errno %d\n", errno);
      exit(77);
    }
    Must(RmAlloc(file_, 0, 0, root_, abi::kRoot, &root_, sizeof root_), "root");
    abi::DeviceParams device = {};
    Must(RmAlloc(file_, root_, root_, device_, abi::kDevice, &device, sizeof device), "device");
    uint32_t none = 0;
    Must(RmAlloc(file_, root_, device_, subdevice_, abi::kSubdevice, &none, sizeof none), "subdevice");
  }
  ~RmClient() {
    RmFree(file_, root_, 0, root_);
    close(gpu_);
    close(file_);
  }
  RmClient(const RmClient&) = delete;

  int File() const { return file_; }
  uint32_t Root() const { return root_; }

  // Takes somebody's channels off the GPU or puts them back.
  uint32_t Disable(bool disable, uint32_t client, const uint32_t* channels, unsigned count) const {
    abi::DisableChannels params = {};
    params.disable = disable;
    for (unsigned i = 0; i < count && i < abi::kMostChannels; ++i) {
      params.client[i] = client;
      params.channel[i] = channels[i];
      ++params.channels;
    }
    return RmControl(file_, root_, subdevice_, abi::kDisableChannels, &params, sizeof params);
  }

 private:
  static void Must(uint32_t status, const char* what) {
    if (status == abi::kOk) return;
    printf("RM gives no %s: status %#x\n", what, status);
    exit(1);
  }

  const int file_, gpu_;
  uint32_t root_ = 0;
  uint32_t device_ = 0xcaf00001, subdevice_ = 0xcaf00002;
};
