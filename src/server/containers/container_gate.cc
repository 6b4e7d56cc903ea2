#include "server/containers/container_gate.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/descriptor.h"
#include "base/install/peer.h"
#include "base/seqpacket.h"
#include "guard/supervisor/filter.h"
#include "server/loop/listeners.h"
#include "server/model/process_facts.h"
#include "server/record/log.h"

namespace tessera::server {

using Json = nlohmann::json;

namespace {

pid_t PeerPid(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? peer.pid : 0;
}

}  // namespace

Result<std::unique_ptr<ContainerGate>> ContainerGate::Start(EventLoop& loop, const std::string& path, VGpuTable& table,
                                                            KernelGate& gate, const Authority& authority) {
  auto listener = ListenStream(path, 0600);
  if (!listener) return std::unexpected(listener.error());
  std::unique_ptr<ContainerGate> containers(new ContainerGate(loop, path, table, gate, authority));
  auto acceptor = Acceptor::Start(
      loop, std::move(*listener), [self = containers.get()](UniqueFd socket) { self->Begin(std::move(socket)); },
      [](UniqueFd) { log::Warn("a container runtime was turned away: the daemon has no file descriptor left"); });
  if (!acceptor) return std::unexpected(acceptor.error());
  containers->acceptor_ = std::move(*acceptor);
  return containers;
}

ContainerGate::ContainerGate(EventLoop& loop, std::string path, VGpuTable& table, KernelGate& gate,
                             const Authority& authority)
    : loop_(loop),
      path_(std::move(path)),
      table_(table),
      gate_(gate),
      authority_(authority),
      silent_timer_(loop, [this] { DropSilent(); }) {}

ContainerGate::~ContainerGate() { unlink(path_.c_str()); }

void ContainerGate::Begin(UniqueFd socket) {
  if (!PeerIsTrusted(socket.Get()))
    return log::Warn("user {} sent a container's listener: only root and the daemon's user may",
                     PeerUser(socket.Get()));
  if (pending_.size() >= kMostPending) return log::Warn("a container runtime was turned away: {} wait", kMostPending);
  const std::uint64_t id = ++last_id_;
  auto watch = loop_.WatchReadable(socket.Get(), [this, id] { Read(id); });
  if (!watch) return log::Warn("a container runtime was turned away: {}", watch.error().Text());
  Pending& pending = pending_[id];
  pending.socket = std::move(socket);
  pending.watch = std::move(*watch);
  pending.until = MonotonicNow() + kPatience;
  silent_timer_.Arm(pending.until);
}

// Runtimes send all in one piece, and close.
void ContainerGate::Read(std::uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end() || found->second.served) return;
  Pending& pending = found->second;
  const bool more = ReadMore(pending);
  const bool whole = Json::accept(pending.json);
  if (more && !whole) return;
  pending.served = true;
  if (auto served = Serve(pending); !served)
    log::Warn("a container is not behind the kernel gate, and gets no GPU memory: {}", served.error().Text());
  End(id);
}

// False: nothing more comes.
bool ContainerGate::ReadMore(Pending& pending) {
  std::array<std::byte, 65536> buffer;
  std::array<UniqueFd, kMostDescriptors> files;
  for (;;) {
    std::size_t count = 0;
    const ssize_t length = ReceivePacket(pending.socket.Get(), buffer, files, count);
    for (UniqueFd& file : std::span(files).first(count)) pending.files.push_back(std::move(file));
    if (length < 0 && errno == EAGAIN) return true;
    if (length <= 0) return false;
    pending.json.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(length));
    if (pending.json.size() > kMostStateBytes || pending.files.size() > kMostDescriptors) return false;
  }
}

// The runtime has just written its configuration: it lies in memory.
Result<std::string> ContainerGate::VGpusOf(const ContainerState& state, pid_t runtime) {
  if (!state.metadata.empty()) return state.metadata;
  const auto config = ReadConfig(state.bundle, runtime);
  if (!config) return config;
  auto names = VariableIn(*config, "TESSERA_VGPU");
  if (!names || !names->empty()) return names;
  return Fail(ENOENT, "it has no vGPU", "give it one by its CDI device, or name one in the profile");
}

Result<void> ContainerGate::Serve(Pending& pending) {
  const auto state = ParseContainerState(pending.json);
  if (!state) return std::unexpected(state.error());
  const std::string who = "container " + (state->id.empty() ? std::to_string(state->pid) : state->id);
  if (state->listener >= pending.files.size() || !guard::IsListener(pending.files[state->listener].Get()))
    return Fail(EPROTO, who + " came without a seccomp listener");
  const auto user = OwnerOf(state->pid);
  if (!user) return Fail(ESRCH, who + " has ended");
  const auto vgpus_named = VGpusOf(*state, PeerPid(pending.socket.Get()));
  if (!vgpus_named) return Fail(vgpus_named.error().code, who + ": " + vgpus_named.error().Text());
  // The profile is the administrator's word, as root's; the container's environment is the container's.
  const Caller caller = authority_.Identify(state->metadata.empty() ? *user : PeerUser(pending.socket.Get()), {});
  auto chosen = table_.Choose(*vgpus_named, authority_, caller);
  if (!chosen) return Fail(chosen.error().code, who + ": " + chosen.error().Text());
  std::vector<VgpuId> vgpus;
  for (const VGpu* vgpu : *chosen) {
    if (auto takes = table_.Gpu(*vgpu).Health().TakesNewcomers(); !takes)
      return Fail(takes.error().code, who + ": " + takes.error().Text());
    vgpus.push_back(vgpu->id);
  }
  log::Info("{} joins {} behind the kernel gate", who, chosen->front()->spec.name);
  return gate_.Supervise(std::move(pending.files[state->listener]), std::move(vgpus),
                         {.name = who, .pid = state->pid, .uid = *user, .by_operator = caller.IsOperator()});
}

// Soon, because this may be in the watch's own callback.
void ContainerGate::End(std::uint64_t id) {
  loop_.Post([this, id] {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    for (UniqueFd& file : found->second.files) {
      if (file && !IsPrompt(file.Get())) CloseElsewhere(std::move(file));
    }
    pending_.erase(found);
  });
}

void ContainerGate::DropSilent() {
  const Nanos now = MonotonicNow();
  Nanos next = kNever;
  for (const auto& [id, pending] : pending_) {
    if (pending.until <= now) {
      End(id);
    } else {
      next = std::min(next, pending.until);
    }
  }
  silent_timer_.Arm(next);
}

}  // namespace tessera::server
