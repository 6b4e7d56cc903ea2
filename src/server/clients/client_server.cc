#include "server/clients/client_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/seqpacket.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

// Half of the descriptors that the daemon may have: programs that come need some, too.
std::size_t MostExported() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 2 : 0;
}

constexpr int kMostPacketsInASocket = 1024;  // net.unix.max_dgram_qlen is 512 at most by default

#ifndef SO_PEERPIDFD
constexpr int kPeerPidfd = 77;  // Linux 6.5
#else
constexpr int kPeerPidfd = SO_PEERPIDFD;
#endif

// A pidfd of the process that connected. Empty with errno set: it is gone (ESRCH or EINVAL), or there is no descriptor.
UniqueFd PidfdOf(int socket, pid_t pid) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &length) == 0) return UniqueFd(pidfd);
  if (errno != ENOPROTOOPT) return {};
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool HasEnded(int pidfd) {
  pollfd end{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&end, 1, 0) != 0;
}

}  // namespace

Result<std::unique_ptr<ClientServer>> ClientServer::Start(EventLoop& loop, UniqueFd listener,
                                                          const ClientServices& services) {
  std::unique_ptr<ClientServer> server(new ClientServer(loop, services));
  auto acceptor = Acceptor::Start(
      loop, std::move(listener), [self = server.get()](UniqueFd socket) { self->Begin(std::move(socket)); },
      [](UniqueFd socket) {
        log::Warn("rejected a program: the daemon has no file descriptor left");
        TurnAway(std::move(socket), {EMFILE, "the daemon has no file descriptor left", "raise LimitNOFILE"});
      });
  if (!acceptor) return std::unexpected(acceptor.error());
  server->acceptor_ = std::move(*acceptor);
  return server;
}

ClientServer::ClientServer(EventLoop& loop, const ClientServices& services)
    : loop_(loop), services_(services), exports_(MostExported()) {
  for (const auto& gpu : services_.gpus) {
    gpu->Memory().OnShortage([this](std::optional<VgpuId> vgpu, Nanos now) { ReadPending(vgpu, now); });
  }
}

ClientServer::~ClientServer() {
  for (const auto& gpu : services_.gpus) gpu->Memory().OnShortage({});
}

void ClientServer::TurnAway(UniqueFd socket, const Error& why) {
  wire::Refused refused{.code = why.code};
  wire::SetText(refused.text, why.Text());
  SendPacket(socket.Get(), wire::BytesOf(wire::Make(refused)));
}

void ClientServer::Begin(UniqueFd socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket.Get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return;
  Caller caller = services_.authority.Identify(peer.uid, GroupsOfPeer(socket.Get()));
  auto claim = Admit(caller);
  if (!claim) {
    log::WarnOf(peer.uid, "rejected process {}: {}", peer.pid, claim.error().Text());
    return TurnAway(std::move(socket), claim.error());
  }
  const std::uint64_t id = ++last_id_;
  Client client{
      .claim = std::move(*claim),
      .session = std::make_unique<Session>(id, std::move(socket), peer, std::move(caller), services_, exports_)};
  if (auto watched = WatchClient(client, id); !watched) {
    log::WarnOf(peer.uid, "rejected a program: {}", watched.error().Text());
    return;
  }
  sessions_.emplace(id, std::move(client));
  log::Debug("process {} of user {} connected", peer.pid, peer.uid);
}

Result<UserBounds::Claim> ClientServer::Admit(const Caller& caller) const {
  constexpr auto kKind = UserBounds::Kind::kConnection;
  const std::size_t count = services_.bounds.CountOf(caller.uid, kKind);
  if (auto admitted = services_.quotas.AdmitSession(caller, count); !admitted) return std::unexpected(admitted.error());
  return services_.bounds.Take(caller.uid, kKind, UserBounds::kForConnection);
}

Result<void> ClientServer::WatchClient(Client& client, std::uint64_t id) {
  Session& session = *client.session;
  auto socket_watch =
      loop_.WatchReadable(session.Socket(), [this, id] { Act(id, [](Session& s) { s.ReadPending(); }); });
  if (!socket_watch) return std::unexpected(socket_watch.error());
  client.socket_watch = std::move(*socket_watch);
  // All that is known of a program is found by its pid. Once it has ended, the pid may be another's.
  client.process_fd = PidfdOf(session.Socket(), session.Peer().pid);
  if (!client.process_fd && session.Peer().pid == 0) return {};  // of another PID namespace: the socket tells
  if (!client.process_fd) return FailErrno(fmt::format("process {}", session.Peer().pid));
  if (HasEnded(client.process_fd.Get()))
    return Fail(ESRCH, fmt::format("process {} has ended already", session.Peer().pid));
  auto process_watch = loop_.WatchReadable(client.process_fd.Get(),
                                           [this, id] { Act(id, [](Session& s) { s.Close(MonotonicNow()); }); });
  if (!process_watch) return std::unexpected(process_watch.error());
  client.process_watch = std::move(*process_watch);
  return {};
}

void ClientServer::Act(std::uint64_t id, void (*act)(Session&)) {
  const Client& client = sessions_.at(id);
  Session& session = *client.session;
  if (client.process_fd && HasEnded(client.process_fd.Get())) {
    session.Close(MonotonicNow());  // also if its last packets were seen before its end
  } else {
    act(session);
  }
  if (session.Closed()) Reap();
}

// Before somebody is refused memory: the messages of those whose memory counts against the same limit.
void ClientServer::ReadPending(std::optional<VgpuId> vgpu, Nanos now) {
  bool closed = false;
  for (auto& [id, client] : sessions_) {
    if (vgpu && !client.session->Uses(*vgpu)) continue;
    client.session->ReadPending(kMostPacketsInASocket, now);
    closed |= client.session->Closed();
  }
  if (closed) Reap();
}

// Destroys closed sessions soon: not now, because this may be one's own callback.
void ClientServer::Reap() {
  if (std::exchange(reaping_, true)) return;
  loop_.Post([this] {
    reaping_ = false;
    std::erase_if(sessions_, [](const auto& entry) { return entry.second.session->Closed(); });
    if (sessions_.empty() && on_empty_) on_empty_();
  });
}

}  // namespace tessera::server
