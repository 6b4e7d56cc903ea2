#include "server/swap_heir.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/seqpacket.h"
#include "server/log.h"
#include "wire/mover.h"

namespace tessera::server {

using wire::MoverMessage;
using wire::MoverType;

namespace {

constexpr int kMostSilenceMs = 5000;

bool IsOurs(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

std::uint64_t SizeOf(const UniqueFd& file) {
  struct stat status{};
  return file && fstat(file.Get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

}  // namespace

std::optional<KeptSwap> TakeKeptSwap(const std::string& path) {
  const UniqueFd socket = ConnectSeqpacket(path.c_str(), kMostSilenceMs);
  if (!socket || !IsOurs(socket.Get())) return {};
  const timeval limit{.tv_sec = kMostSilenceMs / 1000, .tv_usec = 0};
  setsockopt(socket.Get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  UniqueFd file, file_table;
  std::optional<SwapSlots> slots;
  while (true) {
    alignas(8) std::array<std::byte, sizeof(MoverMessage)> packet;
    UniqueFd fd;
    const ssize_t length = ReceivePacket(socket.Get(), packet, &fd);
    const auto message =
        length > 0 ? wire::ReadMover(std::span(packet).first(static_cast<std::size_t>(length))) : std::nullopt;
    if (!message) {
      log::Warn("the mover of an earlier daemon did not give its pool: {}", path);
      return {};
    }
    if (message->type == MoverType::kAll) break;
    if (message->type == MoverType::kSlotsTable) {
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
  KeptSwap kept{.slots = std::move(*slots), .file = {}};
  if (const std::uint64_t bytes = SizeOf(file); bytes > 0 && file_table)
    kept.file = {.file = std::move(file), .table = std::move(file_table), .bytes = bytes};
  return kept;
}

}  // namespace tessera::server
