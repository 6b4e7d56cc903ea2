#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Duplicates of the nvidia-uvm files of programs in spaces, by which their GPU addresses outlive them for a moment.
//
// A client of MPS has its channels in its server's group. When it is killed in the middle of its work, the kernel may
// close its nvidia-uvm file first: its kernels then run into addresses that are no more, and that fault ends all
// clients of the server. With a duplicate the driver takes its channels off first, as it closes the other files, and
// nothing faults (docs/hardware-log.md, 2026-11-25: of 8 kills each, 1 to 2 faults without, none with one). A space
// that stands has kernels of the dead on the way, which go on when it runs again. Runs on the loop's thread.
//
// A client may be hostile: it opens the device as often as it can, or has another file by its name, whose end may block
// whoever closes it. So a few files of each are held, found among a bounded number, and devices alone.
class ClientFiles {
 public:
  static constexpr const char* kDevice = "/dev/nvidia-uvm";

  explicit ClientFiles(EventLoop& loop, std::string device = kDevice) : loop_(loop), device_(std::move(device)) {}
  ClientFiles(const ClientFiles&) = delete;

  // The client begins to work: takes duplicates of the files that it has now, in place of those taken before. Where
  // this process may not do that (pidfd_getfd(2)), nothing is held, and the log says so once.
  void Hold(pid_t client);
  // It has left, and may have ended: its files are closed, by a thread of their own, as that takes long, when the space
  // has not stood for kAfter in sum. `stands` says whether it does now; the object may call it as long as it lives.
  void Release(pid_t client, std::function<bool()> stands);
  std::size_t Held() const { return files_.size(); }

  static constexpr Nanos kAfter = kSecond / 2;    // the driver has taken its channels off by then
  static constexpr Nanos kLook = kAfter / 10;     // how often the space is looked at
  static constexpr std::size_t kMostFiles = 8;    // of one client, which has two or three
  static constexpr std::size_t kMostSeen = 4096;  // of its descriptors, from the lowest one on

 private:
  using Files = std::vector<UniqueFd>;
  struct Leaving {
    Files files;
    std::function<bool()> stands;
    Nanos ran = 0;  // how long the space has not stood
    std::unique_ptr<EventLoop::Timer> timer;
  };
  std::vector<int> DescriptorsOf(pid_t client) const;
  Files Duplicates(pid_t client);
  void Look(std::uint64_t number);
  static void Close(Files files);

  EventLoop& loop_;
  const std::string device_;
  std::map<pid_t, Files> files_;
  std::map<std::uint64_t, Leaving> leaving_;
  std::uint64_t last_ = 0;
  bool told_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // names this object to what it has posted
};

}  // namespace tessera::server
