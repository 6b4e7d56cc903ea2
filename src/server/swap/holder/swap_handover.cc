#include "server/swap/holder/swap_handover.h"

#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fault.h"
#include "base/install/peer.h"
#include "base/seqpacket.h"
#include "base/size.h"
#include "server/record/log.h"
#include "wire/line.h"
#include "wire/swap_holder.h"

namespace tessera::server {

using wire::SwapHolderMessage;
using wire::SwapHolderType;

namespace {

// A mover lets its copies end first, for 5 s at most.
constexpr Nanos kMostWaiting = 10 * kSecond;

bool AwaitReadable(const UniqueFd& fd, Nanos end) {
  pollfd poll = {.fd = fd.Get(), .events = POLLIN};
  return ::poll(&poll, 1, static_cast<int>(std::max<Nanos>(end - MonotonicNow(), 0) / kMillisecond)) > 0;
}

std::uint64_t SizeOf(const UniqueFd& file) {
  struct stat status{};
  return file && fstat(file.Get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

// What a holder gives.
struct Gift {
  std::uint64_t version = 0;
  std::optional<SwapSlots> slots;
  std::vector<std::uint64_t> not_kept;  // slots that this daemon has no descriptor for
  UniqueFd file, file_table, mover;
  bool all = false;

  void Add(const SwapHolderMessage& message, UniqueFd fd) {
    if (message.type == SwapHolderType::kSlotsTable) {
      version = message.number;
      if (fd) slots = SwapSlots::Over(std::move(fd));
    } else if (message.type == SwapHolderType::kMover) {
      mover = std::move(fd);
    } else if (message.type == SwapHolderType::kFile && fd) {
      file = OutOfTheWay(std::move(fd));
    } else if (message.type == SwapHolderType::kFileTable && fd) {
      file_table = OutOfTheWay(std::move(fd));
    } else if (message.type == SwapHolderType::kSlot && slots) {
      if (!slots->Keep(message.number, std::move(fd))) not_kept.push_back(message.number);
      PassFault("daemon.slot.received");
    } else if (message.type == SwapHolderType::kAll) {
      all = true;
    }
  }
};

Gift ReceiveFrom(const UniqueFd& socket, Nanos end) {
  Gift gift;
  while (!gift.all && AwaitReadable(socket, end)) {
    std::array<std::byte, sizeof(SwapHolderMessage)> packet;
    UniqueFd fd;
    const ssize_t length = ReceivePacket(socket.Get(), packet, &fd);
    if (length <= 0) break;
    if (const auto message = wire::ReadSwapHolder(std::span(packet).first(static_cast<std::size_t>(length))))
      gift.Add(*message, std::move(fd));
  }
  return gift;
}

// The holder would keep them as long as there are daemons, and nobody could use them: not even after their programs'
// ends, which this daemon's movers do not see. That a later daemon could have more descriptors is not worth that.
void GiveBack(const UniqueFd& holder, const std::vector<std::uint64_t>& slots) {
  if (slots.empty()) return;
  log::Warn(
      "{} of host memory of an earlier daemon cannot be kept, because the descriptors do not suffice: what programs "
      "have "
      "there stays there until they free it or end. Raise the limit of open files (LimitNOFILE=)",
      FormatSize(slots.size() * wire::kChunkBytes));
  for (const std::uint64_t number : slots) {
    const SwapHolderMessage gone = {.type = SwapHolderType::kSlotGone, .number = number};
    if (!SendPacket(holder.Get(), wire::BytesOf(gone))) return;
  }
}

}  // namespace

std::optional<KeptSwap> TakeKeptSwap(const std::string& path) {
  const Nanos end = MonotonicNow() + kMostWaiting;
  UniqueFd socket = ConnectSeqpacket(path.c_str(), kMostWaiting / kMillisecond);
  const SwapHolderMessage give = {.type = SwapHolderType::kGive};
  if (!socket || !PeerIsOwn(socket.Get()) || !SendPacket(socket.Get(), wire::BytesOf(give))) return {};
  Gift gift = ReceiveFrom(socket, end);
  // The GPU has place for one mover's context beside what programs have.
  if (gift.mover) AwaitReadable(gift.mover, end);
  if (!gift.slots) return {};  // nobody had anything, and it ended; or its daemon gave it nothing
  if (gift.version != wire::kHandoverVersion) {
    log::Warn(
        "the swap holder of an earlier daemon is of another version of Tessera: what programs have in host memory "
        "stays there. Stop programs before an upgrade");
    return {};
  }
  if (gift.slots->table() < 0) return {};
  if (!gift.all) {
    log::Warn("the swap holder ended before it had given all: some of what programs have in host memory stays there");
    socket.Reset();
  }
  if (socket) GiveBack(socket, gift.not_kept);
  KeptSwap kept{.slots = std::move(*gift.slots), .file = {}, .holder = std::move(socket)};
  if (const std::uint64_t bytes = SizeOf(gift.file); bytes > 0 && gift.file_table)
    kept.file = {.file = std::move(gift.file), .table = std::move(gift.file_table), .bytes = bytes};
  return kept;
}

}  // namespace tessera::server
