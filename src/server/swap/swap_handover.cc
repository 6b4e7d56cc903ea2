#include "server/swap/swap_handover.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "server/record/log.h"
#include "wire/mover.h"

namespace tessera::server {

using wire::MoverMessage;
using wire::MoverType;

namespace {

// A mover lets its copies end first, for 5 s at most.
constexpr Nanos kMostWaiting = 10 * kSecond;

// The process that listens at the other end; 0: its pid is not known here. None: it is not ours.
std::optional<pid_t> MoverAt(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid()) return {};
  return peer.pid;
}

// The GPU has place for one mover's context beside what programs have. The next mover can have that only when this one
// has ended. In a test it is a thread.
void AwaitEnd(pid_t mover, Nanos end) {
  if (mover == getpid()) return;
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, mover, 0)));
  if (!process) return;  // it has ended, or is not known
  pollfd poll = {.fd = process.Get(), .events = POLLIN};
  ::poll(&poll, 1, static_cast<int>(std::max<Nanos>(end - MonotonicNow(), 0) / kMillisecond));
}

std::uint64_t SizeOf(const UniqueFd& file) {
  struct stat status{};
  return file && fstat(file.Get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

}  // namespace

std::optional<KeptSwap> TakeKeptSwap(const std::string& path) {
  const Nanos end = MonotonicNow() + kMostWaiting;
  const UniqueFd socket = ConnectSeqpacket(path.c_str(), kMostWaiting / kMillisecond);
  const std::optional<pid_t> mover = socket ? MoverAt(socket.Get()) : std::nullopt;
  if (!mover) return {};
  UniqueFd file, file_table;
  std::optional<SwapSlots> slots;
  while (true) {
    alignas(8) std::array<std::byte, sizeof(MoverMessage)> packet;
    UniqueFd fd;
    pollfd poll = {.fd = socket.Get(), .events = POLLIN};
    ::poll(&poll, 1, static_cast<int>(std::max<Nanos>(end - MonotonicNow(), 0) / kMillisecond));
    const ssize_t length = poll.revents != 0 ? ReceivePacket(socket.Get(), packet, &fd) : -1;
    // It ended when it saw that nobody has anything there.
    if (!slots && poll.revents != 0 && length <= 0) {
      AwaitEnd(*mover, end);
      return {};
    }
    const auto message =
        length > 0 ? wire::ReadMover(std::span(packet).first(static_cast<std::size_t>(length))) : std::nullopt;
    if (!message) {
      log::Warn("the mover of an earlier daemon did not give its pool: {}", path);
      return {};
    }
    if (message->type == MoverType::kAll) break;
    if (message->type == MoverType::kSlotsTable) {
      if (message->other != wire::kHandoverVersion) {
        log::Warn(
            "the mover of an earlier daemon is of another version of Tessera: what programs have in host memory "
            "stays there. Stop programs before an upgrade");
        return {};
      }
      slots = SwapSlots::Over(std::move(fd));
    } else if (message->type == MoverType::kFile) {
      file = OutOfTheWay(std::move(fd));
    } else if (message->type == MoverType::kFileTable) {
      file_table = OutOfTheWay(std::move(fd));
    } else if (message->type == MoverType::kSlotMade && slots) {
      slots->Keep(message->bytes, std::move(fd));
    }
  }
  if (!slots || slots->table() < 0) return {};
  if (!SendPacket(socket.Get(), wire::BytesOf(MoverMessage{.type = MoverType::kAll}))) return {};
  AwaitEnd(*mover, end);
  KeptSwap kept{.slots = std::move(*slots), .file = {}};
  if (const std::uint64_t bytes = SizeOf(file); bytes > 0 && file_table)
    kept.file = {.file = std::move(file), .table = std::move(file_table), .bytes = bytes};
  return kept;
}

}  // namespace tessera::server
