#include "soft/shared/mps_servers.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>

#include "soft/shared/shared_layout.h"

namespace tessera::soft {
namespace {

using namespace cuda;  // NOLINT: the driver's own names

// How long a client goes without looking whether its server lives.
constexpr Nanos kServerCheck = 20 * kMillisecond;

bool IsServer(const SharedSlot& slot) { return slot.process.pid != 0 && slot.mps.server == slot.process; }

bool IsClientOf(const SharedLayout& layout, const SharedSlot& slot, const ProcessId& server) {
  return slot.mps.server == server && !IsServer(slot) && slot.process.Alive(layout.pid_namespace);
}

template <typename Wanted>
SharedSlot* FindServer(SharedLayout& layout, Wanted wanted) TESSERA_REQUIRES(layout.mutex) {
  for (SharedSlot& slot : std::span(layout.slots, layout.slot_count)) {
    if (IsServer(slot) && wanted(slot.process) && slot.process.Alive(layout.pid_namespace)) return &slot;
  }
  return nullptr;
}

// A server that faulted is as new once the last of its clients has exited.
MpsServerState StateNow(SharedLayout& layout, SharedSlot& server) TESSERA_REQUIRES(layout.mutex) {
  if (server.mps.state == MpsServerState::kFault) {
    const bool left = std::ranges::any_of(std::span(layout.slots, layout.slot_count), [&](const SharedSlot& slot) {
      return IsClientOf(layout, slot, server.process);
    });
    if (!left) server.mps.state = MpsServerState::kActive;
  }
  return server.mps.state;
}

void End(SharedSlot& client, CUresult error) {
  std::int32_t lives = CUDA_SUCCESS;
  client.mps.ended.compare_exchange_strong(lives, error);
}

// ESRCH if no living server has this process number.
Result<SharedSlot*> ServerOf(SharedLayout& layout, pid_t pid) TESSERA_REQUIRES(layout.mutex) {
  SharedSlot* server = FindServer(layout, [&](const ProcessId& process) { return process.Here() == pid; });
  if (server == nullptr) return Fail(ESRCH, "soft GPU: no MPS server has process number " + std::to_string(pid));
  return server;
}

}  // namespace

std::uint32_t MultiprocessorsOf(double percentage, std::uint32_t all) {
  if (!(percentage > 0 && percentage < 100)) return all;
  return std::max(static_cast<std::uint32_t>(percentage / 100 * all), 1u);
}

void BecomeMpsServer(SharedState& state, double percentage) {
  SharedLayout& layout = state.layout();
  for (int device = 0; device < state.spec().devices; ++device) state.AddContexts(device, 1);
  const RobustLock lock(layout.mutex);
  SharedSlot& slot = state.slot();
  slot.mps.server_slot = static_cast<std::uint32_t>(&slot - layout.slots);
  slot.mps.percentage = percentage;
  slot.mps.server = slot.process;
}

CUresult JoinMpsServer(SharedState& state, const ProcessId& process, std::optional<double> percentage) {
  SharedLayout& layout = state.layout();
  const RobustLock lock(layout.mutex);
  SharedSlot* server = FindServer(layout, [&](const ProcessId& found) { return found == process; });
  if (server == nullptr) return CUDA_ERROR_MPS_CONNECTION_FAILED;
  if (StateNow(layout, *server) != MpsServerState::kActive) return CUDA_ERROR_MPS_SERVER_NOT_READY;
  SharedSlot& slot = state.slot();
  const std::uint32_t all = layout.spec.multiprocessors;
  slot.mps.multiprocessors = MultiprocessorsOf(server->mps.percentage, all);
  if (percentage) slot.mps.multiprocessors = std::min(slot.mps.multiprocessors, MultiprocessorsOf(*percentage, all));
  slot.mps.server_slot = static_cast<std::uint32_t>(server - layout.slots);
  slot.mps.server_seen = MonotonicNow();
  // A freeze or a slice of the group is one of all that belong to it.
  for (int device = 0; device < layout.spec.devices; ++device) {
    slot.use[device].frozen = server->use[device].frozen.load();
    slot.use[device].slice = server->use[device].slice.load();
  }
  slot.mps.server = server->process;
  return CUDA_SUCCESS;
}

std::uint32_t UsableMultiprocessors(SharedState& state) {
  const std::uint32_t ceiling = state.slot().mps.multiprocessors;
  return ceiling != 0 ? ceiling : state.spec().multiprocessors;
}

bool IsMpsClient(SharedState& state) {
  const SharedSlot& slot = state.slot();
  return slot.mps.server.pid != 0 && !IsServer(slot);
}

CUresult EndedByMps(SharedState& state) {
  if (!IsMpsClient(state)) return CUDA_SUCCESS;
  SharedSlot& slot = state.slot();
  if (const std::int32_t ended = slot.mps.ended; ended != CUDA_SUCCESS) return static_cast<CUresult>(ended);
  const Nanos now = MonotonicNow();
  if (now - slot.mps.server_seen < kServerCheck) return CUDA_SUCCESS;
  slot.mps.server_seen = now;
  if (!slot.mps.server.Alive(state.layout().pid_namespace)) End(slot, CUDA_ERROR_MPS_RPC_FAILURE);
  return static_cast<CUresult>(slot.mps.ended.load());
}

void FaultMpsServer(SharedState& state, CUresult error) {
  if (!IsMpsClient(state)) return;
  SharedLayout& layout = state.layout();
  SharedSlot& own = state.slot();
  const RobustLock lock(layout.mutex);
  if (own.mps.ended != CUDA_SUCCESS) return;
  SharedSlot* server = FindServer(layout, [&](const ProcessId& process) { return process == own.mps.server; });
  if (server != nullptr && server->mps.state == MpsServerState::kActive) server->mps.state = MpsServerState::kFault;
  if (server != nullptr) server->mps.culprit = own.process.pid;
  for (SharedSlot& slot : std::span(layout.slots, layout.slot_count)) {
    if (IsClientOf(layout, slot, own.mps.server)) End(slot, error);
  }
}

Result<MpsServer> LookAtMpsServer(SharedState& state, pid_t pid) {
  SharedLayout& layout = state.layout();
  const RobustLock lock(layout.mutex);
  const auto server = ServerOf(layout, pid);
  if (!server) return std::unexpected(server.error());
  return MpsServer{.state = StateNow(layout, **server),
                   .percentage = (*server)->mps.percentage,
                   .culprit = static_cast<pid_t>((*server)->mps.culprit)};
}

Result<std::vector<pid_t>> MpsClientsOf(SharedState& state, pid_t pid, std::optional<int> device) {
  SharedLayout& layout = state.layout();
  const RobustLock lock(layout.mutex);
  const auto server = ServerOf(layout, pid);
  if (!server) return std::unexpected(server.error());
  std::vector<pid_t> clients;
  for (const SharedSlot& slot : std::span(layout.slots, layout.slot_count)) {
    if (!IsClientOf(layout, slot, (*server)->process) || (device && slot.use[*device].contexts == 0)) continue;
    clients.push_back(slot.process.Here());
  }
  return clients;
}

Result<void> SetMpsPercentage(SharedState& state, pid_t pid, double percentage) {
  const RobustLock lock(state.layout().mutex);
  const auto server = ServerOf(state.layout(), pid);
  if (!server) return std::unexpected(server.error());
  (*server)->mps.percentage = percentage;
  return {};
}

Result<void> DrainMpsServer(SharedState& state, pid_t pid) {
  const RobustLock lock(state.layout().mutex);
  const auto server = ServerOf(state.layout(), pid);
  if (!server) return std::unexpected(server.error());
  (*server)->mps.state = MpsServerState::kDraining;
  return {};
}

Result<void> TerminateMpsClient(SharedState& state, pid_t pid, pid_t client) {
  SharedLayout& layout = state.layout();
  const RobustLock lock(layout.mutex);
  const auto server = ServerOf(layout, pid);
  if (!server) return std::unexpected(server.error());
  bool ended = false;
  for (SharedSlot& slot : std::span(layout.slots, layout.slot_count)) {
    if (!IsClientOf(layout, slot, (*server)->process) || slot.process.Here() != client) continue;
    End(slot, CUDA_ERROR_MPS_CLIENT_TERMINATED);
    ended = true;
  }
  if (ended) return {};
  return Fail(ESRCH,
              "soft GPU: process " + std::to_string(client) + " is no client of MPS server " + std::to_string(pid));
}

}  // namespace tessera::soft
