#include "server/clients/gate_holder_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/install/own_program.h"
#include "base/install/peer.h"
#include "base/seqpacket.h"
#include "guard/holder/holder_message.h"
#include "server/record/log.h"

namespace tessera::server {

using guard::HolderMessage;
using guard::HolderType;

namespace {

constexpr Nanos kPatience = 10 * kSecond;
constexpr Nanos kAgain = 10 * kSecond;  // after a holder could not be started
constexpr int kHolderListener = 3;      // where the holder finds it

}  // namespace

// False: there is no holder, or it is about to end.
bool GateHolderLink::Connect(std::vector<Kept>& kept) {
  const Nanos end = MonotonicNow() + kPatience;
  UniqueFd socket = ConnectSeqpacket(path_.c_str(), kPatience / kMillisecond);
  if (!socket || !PeerIsOwn(socket.Get())) return false;
  if (!SendPacket(socket.Get(),
                  guard::BytesOf({.type = HolderType::kHello, .number = static_cast<std::uint64_t>(grace_)})))
    return false;
  for (;;) {
    pollfd poll = {.fd = socket.Get(), .events = POLLIN};
    ::poll(&poll, 1, static_cast<int>(std::max<Nanos>(end - MonotonicNow(), 0) / kMillisecond));
    if (poll.revents == 0) return false;
    std::array<std::byte, sizeof(HolderMessage)> packet;
    std::array<UniqueFd, 2> files;
    std::size_t count = 0;
    const ssize_t length = ReceivePacket(socket.Get(), packet, files, count);
    if (length <= 0) return false;
    const auto message = guard::ReadHolder(std::span(packet).first(static_cast<std::size_t>(length)));
    if (!message) return false;
    if (message->type == HolderType::kAll) break;
    if (message->type == HolderType::kTree && count == files.size())
      kept.push_back({.number = message->number, .listener = std::move(files[0]), .record = std::move(files[1])});
  }
  auto watch = loop_.WatchReadable(socket.Get(), [this] { loop_.Post([this] { Lost(); }); });
  if (!watch) return false;
  fcntl(socket.Get(), F_SETFL, O_NONBLOCK);  // the loop waits for nobody
  socket_ = std::move(socket);
  watch_ = std::move(*watch);
  return true;
}

std::vector<GateHolderLink::Kept> GateHolderLink::Take() {
  std::vector<Kept> kept;
  if (Connect(kept)) return kept;
  struct stat status{};
  if (lstat(path_.c_str(), &status) == 0)
    log::Warn("the gate holder at {} does not answer: programs that it keeps get no more GPU memory", path_);
  return {};
}

Result<void> GateHolderLink::Ensure() {
  if (socket_) return {};
  const Nanos now = MonotonicNow();
  if (failed_at_ != 0 && now - failed_at_ < kAgain) return Fail(ECONNREFUSED, "there is no gate holder");
  auto started = Start();
  failed_at_ = started ? 0 : MonotonicNow();
  return started;
}

// Of those that have ended.
void GateHolderLink::Reap() {
  std::erase_if(children_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
}

Result<void> GateHolderLink::Start() {
  Reap();
  UniqueFd listener = ListenSeqpacket(path_.c_str(), 4);
  if (!listener) return FailErrno("listen at " + path_);
  const auto pid = Spawn({.name = "tessera-gate-holder",
                          .arguments = {path_},
                          .files = {{listener.Get(), kHolderListener}},
                          .lasts = true});
  if (!pid) return std::unexpected(pid.error());
  children_.push_back(*pid);
  listener.Reset();
  std::vector<Kept> kept;
  if (Connect(kept)) return {};
  return Fail(ECONNREFUSED, "the gate holder does not answer at " + path_);
}

Result<void> GateHolderLink::Hold(std::uint64_t number, int listener, int record) {
  if (auto there = Ensure(); !there) return there;
  const std::array files = {listener, record};
  if (SendPacket(socket_.Get(), guard::BytesOf({.type = HolderType::kHold, .number = number}), files)) return {};
  return FailErrno("cannot write to the gate holder");
}

void GateHolderLink::Drop(std::uint64_t number) {
  if (socket_ && !SendPacket(socket_.Get(), guard::BytesOf({.type = HolderType::kDrop, .number = number})))
    log::Warn("the gate holder does not read: {}", FailErrno("send").error().Text());
}

// It says nothing after the greeting: this is its end.
void GateHolderLink::Lost() {
  if (!socket_) return;
  watch_ = {};
  socket_.Reset();
  Reap();
  log::Warn("the gate holder has ended; another one is started");
  on_loss_();
}

}  // namespace tessera::server
