#include "cli/launch/kernel_gate.h"

#include <sys/socket.h>

#include <cstddef>

#include "base/install/peer.h"
#include "base/install/run_dir.h"
#include "base/seqpacket.h"
#include "wire/protocol.h"

namespace tessera::cli {
namespace {

Result<UniqueFd> Connect(const std::string& run_dir) {
  if (auto trusted = CheckRunDir(run_dir); !trusted) return std::unexpected(trusted.error());
  const std::string path = run_dir + "/client.sock";
  UniqueFd socket = ConnectSeqpacket(path.c_str());
  if (!socket) {
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return Fail(ECONNREFUSED, "no daemon answers at " + path, "start one with 'tesserad'");
    }
    return FailErrno("cannot connect to " + path);
  }
  if (!PeerIsTrusted(socket.Get()))
    return Fail(EPERM,
                "the daemon at " + path + " is user " + std::to_string(PeerUser(socket.Get())) +
                    "'s, who is neither root nor you",
                "use another --run-dir");
  const timeval limit = {.tv_sec = kGuardSeconds, .tv_usec = 0};
  setsockopt(socket.Get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket.Get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return socket;
}

Result<wire::Guard> GuardMessage(const GuardedProgram& program) {
  std::string names;
  for (const std::string& vgpu : program.vgpus) names += (names.empty() ? "" : ",") + vgpu;
  wire::Guard guard;
  if (names.size() >= sizeof guard.vgpus) {
    return Fail(E2BIG,
                "the names of the vGPUs together are longer than " + std::to_string(sizeof guard.vgpus - 1) + " bytes",
                "use shorter names");
  }
  wire::SetText(guard.vgpus, names);
  wire::SetText(guard.program, program.name);
  return guard;
}

// Reads the daemon's answer: Welcome, or the reason of a refusal.
Result<void> ReadAnswer(int socket) {
  std::byte buffer[wire::kMaxMessageBytes];
  const ssize_t length = ReceivePacket(socket, buffer);
  if (length < 0 && errno == EAGAIN) return Fail(ETIMEDOUT, "the daemon accepted the connection but does not answer");
  if (length == 0 || (length < 0 && errno == ECONNRESET)) {
    return Fail(ECONNRESET, "the daemon closed the connection and does not guard the program", "see the daemon's log");
  }
  if (length < 0) return FailErrno("cannot read from the daemon");
  const std::span<const std::byte> packet(buffer, length);
  wire::Header header;
  if (wire::ReadHeader(packet, header) == wire::Fault::kNone) {
    if (wire::ReadBody<wire::Welcome>(header, packet)) return {};
    if (const auto refused = wire::ReadBody<wire::Refused>(header, packet)) {
      return Fail(refused->code > 0 ? refused->code : EPERM, std::string(wire::TextOf(refused->text)));
    }
  }
  return Fail(EPROTO, "the daemon's answer is malformed", "use programs and daemon of one version");
}

template <typename Body>
Result<void> Ask(int socket, const Body& body, int fd = -1) {
  if (!SendPacket(socket, wire::BytesOf(wire::Make(body)), fd)) {
    if (errno != EPIPE && errno != ECONNRESET) return FailErrno("cannot write to the daemon");
    // It closed the connection; a Refused that it sent before that can still be read.
  }
  return ReadAnswer(socket);
}

}  // namespace

Result<void> EnterKernelGate(const GuardedProgram& program, const std::function<Result<UniqueFd>()>& install_filter) {
  const auto guard = GuardMessage(program);
  if (!guard) return std::unexpected(guard.error());
  const auto socket = Connect(program.run_dir);
  if (!socket) return std::unexpected(socket.error());
  if (auto agreed = Ask(socket->Get(), *guard); !agreed) return agreed;
  const auto listener = install_filter();
  if (!listener) return std::unexpected(listener.error());
  return Ask(socket->Get(), wire::Listener{}, listener->Get());
}

}  // namespace tessera::cli
