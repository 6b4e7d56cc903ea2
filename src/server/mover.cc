#include "server/mover.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/seqpacket.h"

namespace tessera::server {
namespace {

// The descriptors at which the mover finds them.
constexpr int kMoverSocket = 3, kMoverSlots = 4, kMoverFile = 5, kMoverTable = 6;

// The environment without what would be preloaded: the mover uses the driver itself.
std::vector<char*> PlainEnvironment(bool with_fault) {
  std::vector<char*> plain;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable(*at);
    if (variable.starts_with("LD_PRELOAD=") || (!with_fault && variable.starts_with("TESSERA_FAULT="))) continue;
    plain.push_back(*at);
  }
  plain.push_back(nullptr);
  return plain;
}

class MoverProcess : public Mover {
 public:
  MoverProcess(pid_t pid, UniqueFd socket, SwapSlots& slots) : pid_(pid), socket_(std::move(socket)), slots_(slots) {}
  ~MoverProcess() override {
    watch_ = {};
    socket_.Reset();
    if (!gone_) return;   // this daemon ends, and it keeps the pool for the next one
    kill(pid_, SIGKILL);  // it may hang in the driver
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  Result<void> Watch(EventLoop& loop, std::function<void(const wire::MoverMessage*)> on_message) {
    on_message_ = std::move(on_message);
    auto watch = loop.WatchReadable(socket_.Get(), [this] { Read(); });
    if (!watch) return std::unexpected(watch.error());
    watch_ = std::move(*watch);
    return {};
  }

  bool Send(const wire::MoverMessage& message, int fd) override {
    return !gone_ && SendPacket(socket_.Get(), wire::BytesOf(message), fd);
  }
  pid_t Pid() const override { return pid_; }

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
      if (!message || !OnSlots(*message, std::move(fd))) on_message_(message ? &*message : nullptr);
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

  const pid_t pid_;
  UniqueFd socket_;
  SwapSlots& slots_;
  wire::MoverMessage ready_;  // as it said it
  std::function<void(const wire::MoverMessage*)> on_message_;
  EventLoop::Watch watch_;
  bool gone_ = false;
};

}  // namespace

Result<std::unique_ptr<Mover>> StartMover(EventLoop& loop, const MoverSetup& setup,
                                          std::function<void(const wire::MoverMessage*)> on_message) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(error.value(), "find tessera-mover: " + error.message());
  std::string program = (self.parent_path().parent_path() / "lib/tessera/tessera-mover").string();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return FailErrno("make a socket for the mover");
  UniqueFd own(ends[0]), its(ends[1]);

  std::vector<std::string> words = {program, "--gpu", setup.gpu_uuid};
  if (setup.soft) words.emplace_back("--soft");
  if (!setup.floor.empty()) words.insert(words.end(), {"--floor", setup.floor});
  if (!setup.bequeath.empty()) words.insert(words.end(), {"--bequeath", setup.bequeath});
  if (setup.file >= 0) words.emplace_back("--file");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, its.Get(), kMoverSocket);
  posix_spawn_file_actions_adddup2(&files, setup.slots->table(), kMoverSlots);
  if (setup.file >= 0) {
    posix_spawn_file_actions_adddup2(&files, setup.file, kMoverFile);
    posix_spawn_file_actions_adddup2(&files, setup.table, kMoverTable);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;  // a daemon blocks signals that it reads from descriptors
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, program.c_str(), &files, &attributes, arguments.data(),
                                 PlainEnvironment(!setup.another).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return Fail(failed, "run " + program + ": " + std::strerror(failed));
  auto mover = std::make_unique<MoverProcess>(pid, std::move(own), *setup.slots);
  if (auto watched = mover->Watch(loop, std::move(on_message)); !watched) return std::unexpected(watched.error());
  return mover;
}

}  // namespace tessera::server
