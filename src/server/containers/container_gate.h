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
#include "server/containers/container_state.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/acceptor.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Puts containers behind the kernel gate: a socket (linux.seccomp.listenerPath) to which runc and crun send the seccomp
// listener of a container with its state. On the loop's thread.
//
// Which vGPUs the container joins stands in the profile's listenerMetadata; if that is empty, in TESSERA_VGPU of the
// container, so that one profile serves all containers of a node; these are joined as by a program of the container's
// own user.
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
  static Result<std::string> VGpusOf(const ContainerState& state, pid_t runtime);

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
