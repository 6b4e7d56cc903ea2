#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "server/access/authority.h"
#include "server/clients/kernel_gate.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/acceptor.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// What a container runtime tells of a container whose seccomp profile has a listener: the "Container Process State" of
// the OCI runtime specification (config-linux.md, Seccomp).
struct ContainerState {
  std::string id;            // of the container
  std::string metadata;      // linux.seccomp.listenerMetadata: here the names of vGPUs
  pid_t pid = 0;             // of its first process, as the runtime sees it
  std::size_t listener = 0;  // which of the descriptors that came along is the listener
};
// EPROTO: it is something else.
Result<ContainerState> ParseContainerState(std::string_view json);

// Puts containers behind the kernel gate: a socket (linux.seccomp.listenerPath) to which runc and crun send the seccomp
// listener of a container with its state. On the loop's thread.
//
// Only root and the daemon's own user may connect; the vGPUs that they name are joined as by a program of that user. A
// container that cannot be served keeps no listener: its requests to the driver then fail with ENOSYS.
class ContainerGate {
 public:
  // Listens at `path`. Everything that is given outlives the object, which removes the socket.
  static Result<std::unique_ptr<ContainerGate>> Start(EventLoop& loop, const std::string& path, VGpuTable& table,
                                                      KernelGate& gate, const Authority& authority);
  ~ContainerGate();

  // A state is a few KiB; annotations may be some more.
  static constexpr std::size_t kMostStateBytes = 1 << 20;
  static constexpr std::size_t kMostPending = 64;
  static constexpr Nanos kPatience = 10 * kSecond;

 private:
  // A runtime that has not sent all of the state yet.
  struct Pending {
    UniqueFd socket;
    std::string json;
    std::vector<UniqueFd> files;
    Nanos until = 0;
    bool served = false;  // or refused; it ends soon
    EventLoop::Watch watch;
  };

  ContainerGate(EventLoop& loop, std::string path, VGpuTable& table, KernelGate& gate, const Authority& authority);
  void Begin(UniqueFd socket);
  void Read(std::uint64_t id);
  bool ReadMore(Pending& pending);
  void End(std::uint64_t id);
  void DropSilent();
  Result<void> Serve(Pending& pending);

  EventLoop& loop_;
  const std::string path_;
  VGpuTable& table_;
  KernelGate& gate_;
  const Authority& authority_;
  std::unique_ptr<Acceptor> acceptor_;
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t last_id_ = 0;
  EventLoop::Timer silent_timer_;
};

}  // namespace tessera::server
