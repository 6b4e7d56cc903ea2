#include "server/swap/mover.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include "base/install/own_program.h"
#include "base/seqpacket.h"
#include "server/loop/packet_queue.h"

namespace tessera::server {
namespace {

// The descriptors at which the mover finds them.
constexpr int kMoverSocket = 3, kMoverSlots = 4, kMoverFile = 5, kMoverTable = 6;

class MoverProcess : public Mover {
 public:
  MoverProcess(EventLoop& loop, pid_t pid, UniqueFd socket, const SwapSlots& slots, SwapHolderLink& holder)
      : loop_(loop),
        pid_(pid),
        socket_(std::move(socket)),
        slots_(slots),
        holder_(holder),
        queue_(loop, socket_.Get()) {
    holder_.SetMover(pid, [this](std::uint64_t number) {
      Send({.type = wire::MoverType::kSlotKept, .error = slots_.Has(number) ? 0 : EMFILE, .bytes = number}, -1);
    });
  }
  ~MoverProcess() override { holder_.ForgetMover(); }

  Result<void> Watch(std::function<void(const wire::MoverMessage*)> on_message) {
    on_message_ = std::move(on_message);
    auto watch = loop_.WatchReadable(socket_.Get(), [this] { Read(); });
    if (!watch) return std::unexpected(watch.error());
    watch_ = std::move(*watch);
    return {};
  }

  bool Send(const wire::MoverMessage& message, int fd) override {
    return !gone_ && queue_.Send(wire::BytesOf(message), fd);
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

  // Whether it was about slots only.
  bool OnSlots(const wire::MoverMessage& message, UniqueFd fd) {
    switch (message.type) {
      case wire::MoverType::kSlotMade:
        holder_.Keep(message.bytes, std::move(fd));
        return true;
      case wire::MoverType::kSlotLeft:
        holder_.KeepLeft(message.bytes, static_cast<pid_t>(message.program), std::move(fd));
        return false;
      case wire::MoverType::kSlotGone:
        holder_.Forget(message.bytes);
        return false;
      case wire::MoverType::kReady:
        ready_ = message;
        HandOver(0);
        return true;
      case wire::MoverType::kSlotTaken:
        if (handed_over_) return false;  // the answer to kSlotFor
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
    handed_over_ = true;
    on_message_(&ready_);
  }

  EventLoop& loop_;
  const pid_t pid_;
  UniqueFd socket_;
  const SwapSlots& slots_;
  SwapHolderLink& holder_;
  PacketQueue queue_;
  wire::MoverMessage ready_;  // as it said it
  bool handed_over_ = false;  // it has the slots of the movers before it
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
  if (setup.file >= 0) {
    words.emplace_back("--file");
    program.files.insert(program.files.end(), {{setup.file, kMoverFile}, {setup.table, kMoverTable}});
  }
  if (setup.another) program.without.emplace_back("TESSERA_FAULT");
  const auto pid = Spawn(program);
  if (!pid) return std::unexpected(pid.error());
  auto mover = std::make_unique<MoverProcess>(loop, *pid, std::move(own), *setup.slots, *setup.holder);
  if (auto watched = mover->Watch(std::move(on_message)); !watched) return std::unexpected(watched.error());
  return mover;
}

}  // namespace tessera::server
