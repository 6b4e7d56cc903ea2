#include "mover/swap_handover.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fault.h"
#include "base/install/peer.h"
#include "base/seqpacket.h"
#include "wire/mover.h"

namespace tessera::mover {

using wire::MoverMessage;
using wire::MoverType;

namespace {

constexpr timeval kMostSilence = {.tv_sec = 5, .tv_usec = 0};  // of a daemon that hangs

// True when the daemon says that it has all.
bool Give(int socket, const SwapHandover& handover) {
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kMostSilence, sizeof kMostSilence);
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kMostSilence, sizeof kMostSilence);
  const auto say = [&](MoverType type, std::uint64_t number, int fd) {
    return SendPacket(socket, BytesOf(MoverMessage{.type = type, .bytes = number}), fd);
  };
  const MoverMessage first = {.type = MoverType::kSlotsTable, .other = wire::kHandoverVersion};
  if (!SendPacket(socket, BytesOf(first), handover.slots_table)) return false;
  if (handover.file >= 0 &&
      (!say(MoverType::kFile, 0, handover.file) || !say(MoverType::kFileTable, 0, handover.file_table)))
    return false;
  for (const auto& [number, fd] : handover.slots) {
    if (!say(MoverType::kSlotMade, number, fd)) return false;
    PassFault("mover.handover.given");
  }
  if (!say(MoverType::kAll, 0, -1)) return false;
  std::byte answer[sizeof(MoverMessage)];
  return ReceivePacket(socket, answer) == static_cast<ssize_t>(sizeof answer);
}

}  // namespace

Result<UniqueFd> ListenForSuccessor(const std::string& path) {
  UniqueFd listener = ListenSeqpacket(path.c_str(), 8);
  if (!listener) return FailErrno("listen at " + path);
  return listener;
}

bool HandOver(int listener, const SwapHandover& handover, Nanos patience, const std::function<bool()>& needed) {
  for (const Nanos end = MonotonicNow() + patience; MonotonicNow() < end && needed();) {
    pollfd poll = {.fd = listener, .events = POLLIN};
    if (::poll(&poll, 1, 1000) <= 0) continue;
    const UniqueFd successor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (successor && PeerIsOwn(successor.Get()) && Give(successor.Get(), handover)) return true;
  }
  return false;
}

}  // namespace tessera::mover
