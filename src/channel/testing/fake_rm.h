// A resource manager for tests: it knows clients by their files, GPUs, and what tenants made; it refuses what the real
// one refuses, a whole call for one stale handle too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "channel/rm/driver_abi.h"
#include "channel/rm/object_table.h"
#include "channel/rm/rm_file.h"

namespace tessera::channel {

struct FakeGpu {
  std::uint32_t id = 0, device = 0, subdevice = 0;
  std::array<std::uint8_t, 16> uuid = {};
  bool allowed = true;  // false: attached, but not for this user
};

class FakeRm {
 public:
  using Handle = std::pair<std::uint32_t, std::uint32_t>;  // client, object

  explicit FakeRm(std::vector<FakeGpu> gpus) : gpus_(std::move(gpus)) {}

  // The operating system around it. This object must outlive it and its files.
  std::unique_ptr<RmSystem> System();

  // A process's group on a GPU, with channels of these handles, made through its descriptor `fd`. `process` stands for
  // its pidfd.
  Group MakeGroup(int process, int fd, std::uint32_t client, std::uint32_t handle, std::uint32_t engine,
                  std::uint32_t gpu, std::vector<std::uint32_t> channels);
  void EndProcess(int process);         // and all that it made
  void CloseFile(int process, int fd);  // the same for one file
  void FreeChannel(std::uint32_t client, std::uint32_t channel) { channels_.erase({client, channel}); }
  void ForbidBorrowing() { may_borrow_ = false; }
  // From now on RM answers so to a call that names this channel; kOk ends it.
  void Break(std::uint32_t client, std::uint32_t channel, std::uint32_t status) { broken_[{client, channel}] = status; }

  bool IsFrozen(std::uint32_t client, std::uint32_t channel) const {
    return channels_.at({client, channel}).disabled != 0;
  }
  std::uint64_t SliceOf(std::uint32_t client, std::uint32_t handle) const { return slices_.at({client, handle}); }
  // How many channels each call of abi::kDisableChannels named.
  const std::vector<std::uint32_t>& disable_calls() const { return disable_calls_; }
  std::size_t OpenFiles() const { return open_files_; }
  std::size_t OwnObjects() const { return objects_.size(); }
  bool attached() const { return attached_; }

 private:
  class File;
  class Machine;
  struct Channel {
    std::uint32_t gpu = 0;
    unsigned disabled = 0;  // RM counts
  };
  struct Object {
    std::uint32_t cls = 0, parent = 0;
    std::size_t gpu = 0;  // in gpus_
  };

  std::uint32_t Alloc(int file, abi::Alloc& request);
  std::uint32_t Control(int file, const abi::Control& request);
  std::uint32_t Disable(const Object& subdevice, const abi::DisableChannels& request);
  void Free(int file, abi::Free& request);
  void FileClosed(int file);

  std::vector<FakeGpu> gpus_;
  bool attached_ = false, may_borrow_ = true;
  int next_file_ = 1000;
  std::uint32_t next_client_ = 0xc1d00000;
  std::size_t open_files_ = 0;
  std::map<std::uint32_t, int> clients_;            // by handle: the file that made it
  std::map<Handle, Object> objects_;                // of clients of our own: devices and subdevices
  std::map<std::pair<int, int>, int> descriptors_;  // process, fd: file
  std::set<int> processes_;
  std::map<Handle, Channel> channels_;
  std::map<Handle, std::uint64_t> slices_;  // of groups, microseconds
  std::map<Handle, std::uint32_t> broken_;
  std::vector<std::uint32_t> disable_calls_;
};

}  // namespace tessera::channel
