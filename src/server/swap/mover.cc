#include "server/swap/mover.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "base/install/own_program.h"
#include "base/seqpacket.h"

namespace tessera::server {
namespace {

constexpr Nanos kFlushAgain = 10 * kMillisecond;

// The descriptors at which the mover finds them.
constexpr int kMoverSocket = 3, kMoverSlots = 4, kMoverFile = 5, kMoverTable = 6;

class MoverProcess : public Mover {
 public:
  // A mover that outlives this daemon keeps the pool for the next one.
  MoverProcess(EventLoop& loop, pid_t pid, UniqueFd socket, SwapSlots& slots)
      : loop_(loop), pid_(pid), socket_(std::move(socket)), slots_(slots), flush_(loop, [this] { Flush(); }) {}

  Result<void> Watch(std::function<void(const wire::MoverMessage*)> on_message) {
    on_message_ = std::move(on_message);
    auto watch = loop_.WatchReadable(socket_.Get(), [this] { Read(); });
    if (!watch) return std::unexpected(watch.error());
    watch_ = std::move(*watch);
    return {};
  }

  bool Send(const wire::MoverMessage& message, int fd) override {
    if (gone_) return false;
    if (waiting_.empty() && SendPacket(socket_.Get(), wire::BytesOf(message), fd)) return true;
    if (waiting_.empty() && errno != EAGAIN) return false;
    waiting_.push_back({message, UniqueFd(fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1)});
    flush_.Arm(MonotonicNow() + kFlushAgain);
    return true;
  }
  pid_t Pid() const override { return pid_; }
  bool Ended() override {
    watch_ = {};  // a socket without another end is readable for ever
    return ended_ || (ended_ = waitpid(pid_, nullptr, WNOHANG) != 0);
  }

 private:
  void Read() {
    alignas(8) std::array<std::byte, sizeof(wire::MoverMessage)> packet;
    for (int n = 0; n < 64 && !gone_; ++n) {
      UniqueFd fd;
      const ssize_t length = ReceivePacket(socket_.Get(), packet, &fd);
      if (length < 0 && errno == EAGAIN) return;
      const auto message =
          length > 0 ? wire::ReadMover(std::span(packet).first(static_cast<std::size_t>(length))) : std::nullopt;
      gone_ = !message;
      if (gone_) kill(pid_, SIGKILL);  // it may hang in the driver, or have said what it must not
      if (!message || !OnSlots(*message, std::move(fd))) on_message_(message ? &*message : nullptr);
    }
  }

  void Flush() {
    while (!waiting_.empty() && !gone_) {
      const auto& [message, fd] = waiting_.front();
      if (!SendPacket(socket_.Get(), wire::BytesOf(message), fd.Get()) && errno == EAGAIN)
        return flush_.Arm(MonotonicNow() + kFlushAgain);
      waiting_.pop_front();
    }
  }

  // Whether it was about slots only.
  bool OnSlots(const wire::MoverMessage& message, UniqueFd fd) {
    switch (message.type) {
      case wire::MoverType::kSlotMade:
        slots_.Keep(message.bytes, std::move(fd));
        return true;
      case wire::MoverType::kSlotGone:
        slots_.Forget(message.bytes);
        return true;
      case wire::MoverType::kReady:
        ready_ = message;
        HandOver(0);
        return true;
      case wire::MoverType::kSlotTaken:
        HandOver(message.bytes);
        return true;
      default:
        return false;
    }
  }

  // One at a time, so that they do not wait in the socket, where there may be only so many.
  void HandOver(std::uint64_t last) {
    const auto slot = slots_.After(last);
    if (slot && Send({.type = wire::MoverType::kSlot, .bytes = slot->number}, slot->memory)) return;
    on_message_(&ready_);
  }

  EventLoop& loop_;
  const pid_t pid_;
  UniqueFd socket_;
  SwapSlots& slots_;
  std::deque<std::pair<wire::MoverMessage, UniqueFd>> waiting_;  // for place in the socket
  EventLoop::Timer flush_;
  wire::MoverMessage ready_;  // as it said it
  std::function<void(const wire::MoverMessage*)> on_message_;
  EventLoop::Watch watch_;
  bool gone_ = false;
  bool ended_ = false;  // and was waited for
};

}  // namespace

Result<std::unique_ptr<Mover>> StartMover(EventLoop& loop, const MoverSetup& setup,
                                          std::function<void(const wire::MoverMessage*)> on_message) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return FailErrno("make a socket for the mover");
  UniqueFd own(ends[0]), its(ends[1]);

  OwnProgram program = {.name = "tessera-mover",
                        .arguments = {"--gpu", setup.gpu_uuid},
                        .files = {{its.Get(), kMoverSocket}, {setup.slots->table(), kMoverSlots}}};
  std::vector<std::string>& words = program.arguments;
  if (setup.soft) words.emplace_back("--soft");
  if (!setup.floor.empty()) words.insert(words.end(), {"--floor", setup.floor});
  if (!setup.handover_socket.empty()) words.insert(words.end(), {"--hand-over", setup.handover_socket});
  if (setup.file >= 0) {
    words.emplace_back("--file");
    program.files.insert(program.files.end(), {{setup.file, kMoverFile}, {setup.table, kMoverTable}});
  }
  if (setup.another) program.without.emplace_back("TESSERA_FAULT");
  const auto pid = Spawn(program);
  if (!pid) return std::unexpected(pid.error());
  auto mover = std::make_unique<MoverProcess>(loop, *pid, std::move(own), *setup.slots);
  if (auto watched = mover->Watch(std::move(on_message)); !watched) return std::unexpected(watched.error());
  return mover;
}

}  // namespace tessera::server
