#include "mover/holder/swap_holder.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "base/install/peer.h"
#include "base/seqpacket.h"
#include "mover/pool/key_table.h"

namespace tessera::mover {

using wire::SwapHolderMessage;
using wire::SwapHolderType;

namespace {

constexpr timeval kMostSilence = {.tv_sec = 5, .tv_usec = 0};  // of a daemon that hangs
constexpr Nanos kLookAgain = kSecond;                          // at whether it is needed

// Whether the place is used by a living program.
bool AnyUsed(const UniqueFd& table, const auto& is_held) {
  if (!table) return false;
  const auto opened = KeyTable::Open(UniqueFd(dup(table.Get())));
  if (!opened) return false;
  for (Place place = 0; place < opened->size(); ++place) {
    if (is_held((*opened)[place]) && opened->IsUsed(place)) return true;
  }
  return false;
}

bool Ended(const UniqueFd& process) {
  pollfd poll = {.fd = process.Get(), .events = POLLIN};
  return !process || ::poll(&poll, 1, 0) > 0;
}

}  // namespace

SwapHolder::SwapHolder(UniqueFd listener, std::string path) : listener_(std::move(listener)), path_(std::move(path)) {
  struct stat status{};
  if (lstat(path_.c_str(), &status) != 0) return;
  device_ = status.st_dev;
  name_ = status.st_ino;
}

bool SwapHolder::HasName() const {
  struct stat status{};
  return lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == name_;
}

void SwapHolder::Run() {
  while (RunOnce(kLookAgain)) {
  }
}

bool SwapHolder::RunOnce(Nanos most) {
  const bool alone = !daemon_;
  if (alone && (MonotonicNow() >= until_ || (had_daemon_ && !IsNeeded()))) {
    if (HasName()) unlink(path_.c_str());
    return false;
  }
  // Another daemon waits until this one's end was read.
  std::array<pollfd, 3> watched = {{{.fd = listener_.Get(), .events = static_cast<short>(alone ? POLLIN : 0)},
                                    {.fd = daemon_.Get(), .events = POLLIN},
                                    {.fd = alone && !Ended(mover_) ? mover_.Get() : -1, .events = POLLIN}}};
  if (alone) most = std::min(most, until_ - MonotonicNow() + kMillisecond);
  if (poll(watched.data(), watched.size(), static_cast<int>(std::max<Nanos>(most, 0) / kMillisecond)) <= 0) return true;
  if (alone && watched[0].revents != 0) Accept();
  if (watched[1].revents != 0) ReadDaemon();
  return true;
}

// While the mover lives the next daemon must learn of it, because the GPU has place for one mover's context only.
bool SwapHolder::IsNeeded() const {
  return !Ended(mover_) ||
         AnyUsed(slots_table_, [&](const KeyTable::Entry& entry) { return slots_.contains(entry.memory); }) ||
         (file_ && AnyUsed(file_table_, [](const KeyTable::Entry&) { return true; }));
}

void SwapHolder::Accept() {
  UniqueFd socket(accept4(listener_.Get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket || !PeerIsOwn(socket.Get())) return;
  setsockopt(socket.Get(), SOL_SOCKET, SO_SNDTIMEO, &kMostSilence, sizeof kMostSilence);
  daemon_ = std::move(socket);
  had_daemon_ = true;
}

void SwapHolder::ReadDaemon() {
  std::array<std::byte, sizeof(SwapHolderMessage)> packet;
  UniqueFd fd;
  const ssize_t length = ReceivePacket(daemon_.Get(), packet, &fd);
  if (length < 0 && (errno == EINTR || errno == EAGAIN || errno == EMSGSIZE)) return;
  if (length <= 0) return DaemonEnded();
  if (const auto message = wire::ReadSwapHolder(std::span(packet).first(static_cast<std::size_t>(length))))
    OnMessage(*message, std::move(fd));
}

void SwapHolder::OnMessage(const SwapHolderMessage& message, UniqueFd fd) {
  switch (message.type) {
    case SwapHolderType::kGive:
      if (!GiveAll()) DaemonEnded();
      return;
    case SwapHolderType::kSlotsTable:
      version_ = message.number;
      slots_table_ = std::move(fd);
      return;
    case SwapHolderType::kFile:
      file_ = std::move(fd);
      return;
    case SwapHolderType::kFileTable:
      file_table_ = std::move(fd);
      return;
    case SwapHolderType::kSlot:
      if (fd) slots_.insert_or_assign(message.number, std::move(fd));
      return;
    case SwapHolderType::kSlotGone:
      slots_.erase(message.number);
      return;
    case SwapHolderType::kMover:
      mover_ = std::move(fd);
      return;
    case SwapHolderType::kAll:
      return;
  }
}

// False: the daemon does not take it.
bool SwapHolder::GiveAll() {
  const auto give = [&](SwapHolderType type, std::uint64_t number, int fd) {
    return SendPacket(daemon_.Get(), BytesOf(SwapHolderMessage{.type = type, .number = number}), fd);
  };
  if (!give(SwapHolderType::kSlotsTable, version_, slots_table_.Get()) ||
      !give(SwapHolderType::kMover, 0, mover_.Get()) || !give(SwapHolderType::kFile, 0, file_.Get()) ||
      !give(SwapHolderType::kFileTable, 0, file_table_.Get()))
    return false;
  for (const auto& [number, memory] : slots_) {
    if (!give(SwapHolderType::kSlot, number, memory.Get())) return false;
    PassFault("holder.slot.given");
  }
  return give(SwapHolderType::kAll, slots_.size(), -1);
}

void SwapHolder::DaemonEnded() {
  daemon_.Reset();
  until_ = MonotonicNow() + kKeepFor;
}

}  // namespace tessera::mover
