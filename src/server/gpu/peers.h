#pragma once

#include <sys/types.h>

#include <vector>

#include "base/clock.h"
#include "server/model/process.h"
#include "server/swap/residency_host.h"

namespace tessera::server {

class GpuServer;

// Knows the peers: the processes of one program on several GPUs. Kernels and copies of one may reach the memory of
// another (peer access, copies between GPUs, graphs), and nothing tells which do. So while the memory of a process is
// moved, its peers stand still as well. Runs on the loop's thread.
class Peers {
 public:
  // The GPU outlives the object, and uses it from now on. Each once.
  void Add(GpuServer& gpu);

  // The memory of a process of this program is moved, or away, from now on, or no longer; or a process of it has come,
  // or gone.
  // Stops the others, or lets them go on, one GPU after the other. Each reason to stop stands for itself, and none
  // waits for another, so moves on two GPUs never wait for each other.
  void Follow(pid_t pid, Nanos now);

  // What the peers of the process do.
  PeerWork WorkOf(const Process& process) const;
  // Whether nothing of them can execute.
  bool StandStill(const Process& process) const;

 private:
  template <typename Visit>
  void ForEach(pid_t pid, Visit visit) const;  // calls `visit(gpu, process)`

  std::vector<GpuServer*> gpus_;
};

}  // namespace tessera::server
