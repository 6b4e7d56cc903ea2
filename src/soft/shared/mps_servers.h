// MPS on the soft GPUs: which process is whose client, and how clients end. A server is a process that attached and
// calls itself one; it does no work for its clients, whose contexts are one entity to the arbiter and to steering
// because they name the same server. All functions may be called from any thread; pids are as seen from here.
//
// Facts of the real MPS that this follows: the ceiling is a percentage of the multiprocessors, rounded down; the
// client's own one can only lower the server's; a fatal fault ends all clients of the server, which takes new ones
// after the last of them has exited (NVIDIA, "Multi-Process Service", sections on error containment and provisioning).
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "base/result.h"
#include "cuda/abi_types.h"
#include "soft/shared/process_id.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

// kFault: a client has faulted and not all clients have exited. kDraining: it takes no clients any more.
enum class MpsServerState : std::uint32_t { kActive = 0, kFault = 1, kDraining = 2 };

// The multiprocessors that `percentage` of `all` allows: rounded down, at least 1. `all` where it is not in (0, 100].
std::uint32_t MultiprocessorsOf(double percentage, std::uint32_t all);

// Makes this process a server, with a context on each device. It is one until it detaches or dies.
void BecomeMpsServer(SharedState& state, double percentage);

// Makes this process a client. `percentage`: its own ceiling; nothing: the server's. CUDA_ERROR_MPS_SERVER_NOT_READY
// where the server drains or has faulted, CUDA_ERROR_MPS_CONNECTION_FAILED where it has ended.
cuda::CUresult JoinMpsServer(SharedState& state, const ProcessId& server, std::optional<double> percentage);

// The multiprocessors that this process may use.
std::uint32_t UsableMultiprocessors(SharedState& state);

bool IsMpsClient(SharedState& state);
// The error that ended this process as a client, CUDA_SUCCESS as long as it lives or is none. A server's death is
// noticed within 20 ms. Cheap enough for every step of a kernel.
cuda::CUresult EndedByMps(SharedState& state);
// A fatal fault of this process: if it is a client, ends all clients of its server with `error`. No-op for one that
// was ended before.
void FaultMpsServer(SharedState& state, cuda::CUresult error);

// ---- for the control daemon; ESRCH where there is no such living server, or client of it ------------------------

struct MpsServer {
  MpsServerState state = MpsServerState::kActive;
  double percentage = 100;  // the ceiling of clients to come
  pid_t culprit = 0;        // the client, in its own PID namespace, whose fault was the last one; 0: none had any
};
Result<MpsServer> LookAtMpsServer(SharedState& state, pid_t server);
// In the order of their slots; who has been ended stays until it exits. `device`: only those with a context there.
Result<std::vector<pid_t>> MpsClientsOf(SharedState& state, pid_t server, std::optional<int> device = {});
// Of clients to come. `percentage` lies in (0, 100].
Result<void> SetMpsPercentage(SharedState& state, pid_t server, double percentage);
// Takes no clients from now on.
Result<void> DrainMpsServer(SharedState& state, pid_t server);
// Ends this client with CUDA_ERROR_MPS_CLIENT_TERMINATED, and no other.
Result<void> TerminateMpsClient(SharedState& state, pid_t server, pid_t client);

}  // namespace tessera::soft
