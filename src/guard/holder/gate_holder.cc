#include "guard/holder/gate_holder.h"

#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/install/peer.h"
#include "base/seqpacket.h"
#include "guard/record/tree_record.h"

namespace tessera::guard {
namespace {

constexpr timeval kMostSilence = {.tv_sec = 5, .tv_usec = 0};  // of a daemon that hangs

}  // namespace

void AnswerNotImplemented(int listener, std::uint64_t id) {
  seccomp_notif_sizes sizes{};
  if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0) return;
  std::vector<std::uint64_t> buffer(std::max<std::size_t>(sizes.seccomp_notif_resp, sizeof(seccomp_notif_resp)) / 8 +
                                    1);
  auto* response = reinterpret_cast<seccomp_notif_resp*>(buffer.data());
  response->id = id;
  response->error = -ENOSYS;
  ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, response);
}

GateHolder::GateHolder(UniqueFd listener, std::string path) : listener_(std::move(listener)), path_(std::move(path)) {
  struct stat status{};
  if (lstat(path_.c_str(), &status) != 0) return;
  device_ = status.st_dev;
  file_ = status.st_ino;
}

bool GateHolder::HasName() const {
  struct stat status{};
  return lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == file_;
}

void GateHolder::Run() {
  while (RunOnce(kSecond)) {
  }
}

bool GateHolder::RunOnce(Nanos most) {
  const bool alone = !daemon_;
  const bool answers = alone && MonotonicNow() >= until_;
  if (answers && trees_.empty()) {
    if (HasName()) unlink(path_.c_str());
    return false;
  }
  if (answers && !std::exchange(expired_, true)) {
    for (const auto& [_, tree] : trees_) AnswerCallInHand(tree);
  }
  // A daemon that is there serves the listeners itself, and says when their programs have ended.
  std::vector<pollfd> watched = {{.fd = listener_.Get(), .events = static_cast<short>(alone ? POLLIN : 0)},
                                 {.fd = daemon_.Get(), .events = POLLIN}};
  std::vector<std::uint64_t> numbers;
  if (alone) {
    for (const auto& [number, tree] : trees_) {
      numbers.push_back(number);
      watched.push_back({.fd = tree.listener.Get(), .events = static_cast<short>(answers ? POLLIN : 0)});
    }
  }
  const Nanos wait = alone && !answers ? std::min(most, until_ - MonotonicNow() + kMillisecond) : most;
  if (poll(watched.data(), watched.size(), static_cast<int>(std::max<Nanos>(wait, 0) / kMillisecond)) <= 0) return true;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (watched[i + 2].revents != 0) OnTree(numbers[i], watched[i + 2].revents, answers);
  }
  if (alone && trees_.empty() && !numbers.empty()) until_ = MonotonicNow();
  if (watched[0].revents != 0) Accept();
  if (watched[1].revents != 0) ReadDaemon();
  return true;
}

void GateHolder::OnTree(std::uint64_t number, short events, bool answers) {
  if ((events & POLLIN) != 0 && answers) return AnswerOne(trees_.at(number));
  if ((events & (POLLHUP | POLLERR)) != 0) trees_.erase(number);  // its last process is gone
}

void GateHolder::AnswerOne(const Tree& tree) {
  std::array<std::uint64_t, sizeof(CallInHand::notification) / 8> notification{};
  if (ioctl(tree.listener.Get(), SECCOMP_IOCTL_NOTIF_RECV, notification.data()) != 0) return;
  AnswerNotImplemented(tree.listener.Get(), notification[0]);
}

void GateHolder::AnswerCallInHand(const Tree& tree) {
  auto record = TreeRecord::Open(UniqueFd(dup(tree.record.Get())));
  if (!record || record->Call().Id() == 0) return;
  AnswerNotImplemented(tree.listener.Get(), record->Call().Id());
  record->Call().notification[0] = 0;
}

void GateHolder::Accept() {
  UniqueFd socket(accept4(listener_.Get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket || !PeerIsOwn(socket.Get())) return;
  setsockopt(socket.Get(), SOL_SOCKET, SO_SNDTIMEO, &kMostSilence, sizeof kMostSilence);
  setsockopt(socket.Get(), SOL_SOCKET, SO_RCVTIMEO, &kMostSilence, sizeof kMostSilence);
  daemon_ = std::move(socket);
}

void GateHolder::ReadDaemon() {
  std::array<std::byte, sizeof(HolderMessage)> packet;
  std::array<UniqueFd, 2> files;
  std::size_t count = 0;
  const ssize_t length = ReceivePacket(daemon_.Get(), packet, files, count);
  if (length < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (length <= 0) return DaemonEnded();
  const auto message = ReadHolder(std::span(packet).first(static_cast<std::size_t>(length)));
  if (!message) return;
  switch (message->type) {
    case HolderType::kHello:
      return Greet(*message);
    case HolderType::kHold:
      if (count == files.size())
        trees_.insert_or_assign(message->number, Tree{.listener = std::move(files[0]), .record = std::move(files[1])});
      return;
    case HolderType::kDrop:
      trees_.erase(message->number);
      return;
    default:
      return;
  }
}

void GateHolder::Greet(const HolderMessage& hello) {
  grace_ = static_cast<Nanos>(hello.number);
  expired_ = false;
  for (const auto& [number, tree] : trees_) {
    const std::array files = {tree.listener.Get(), tree.record.Get()};
    if (!SendPacket(daemon_.Get(), BytesOf({.type = HolderType::kTree, .number = number}), files)) return DaemonEnded();
  }
  if (!SendPacket(daemon_.Get(), BytesOf({.type = HolderType::kAll, .number = trees_.size()}))) DaemonEnded();
}

void GateHolder::DaemonEnded() {
  daemon_.Reset();
  until_ = MonotonicNow() + (trees_.empty() ? 0 : grace_);
  expired_ = false;
}

}  // namespace tessera::guard
