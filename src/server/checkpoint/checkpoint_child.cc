#include "server/checkpoint/checkpoint_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <utility>

#include "base/install/own_program.h"
#include "base/mutex.h"
#include "base/seqpacket.h"

namespace tessera::server {
namespace {

constexpr int kChildSocket = 3;  // where the process finds it

// Processes that end by themselves, or that were killed and may still be in the driver. Any thread.
class EndingProcesses {
 public:
  // Waits for those that have ended by now.
  void Add(pid_t pid) {
    const MutexLock lock(mutex_);
    pids_.push_back(pid);
    std::erase_if(pids_, [](pid_t each) { return waitpid(each, nullptr, WNOHANG) != 0; });
  }
  static EndingProcesses& Get() {
    static EndingProcesses& all = *new EndingProcesses;
    return all;
  }

 private:
  Mutex mutex_;
  std::vector<pid_t> pids_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace

CheckpointChild::CheckpointChild(EventLoop& loop, CheckpointProcess process,
                                 std::function<void(const wire::CheckpointAnswer*)> on_answer)
    : loop_(loop), process_(std::move(process)), on_answer_(std::move(on_answer)) {}

CheckpointChild::~CheckpointChild() {
  watch_ = {};
  process_.socket.Reset();
  EndingProcesses::Get().Add(process_.pid);
}

Result<void> CheckpointChild::Watch() {
  auto watch = loop_.WatchReadable(process_.socket.Get(), [this] { Read(); });
  if (!watch) return std::unexpected(watch.error());
  watch_ = std::move(*watch);
  return {};
}

bool CheckpointChild::Send(const wire::CheckpointRequest& request) {
  return !gone_ && SendPacket(process_.socket.Get(), wire::BytesOf(request));
}

void CheckpointChild::Kill() { kill(process_.pid, SIGKILL); }

void CheckpointChild::Read() {
  alignas(8) std::array<std::byte, sizeof(wire::CheckpointAnswer)> packet;
  while (!gone_) {
    const ssize_t length = ReceivePacket(process_.socket.Get(), packet);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const auto answer = length > 0
                            ? wire::ReadCheckpointAnswer(std::span(packet).first(static_cast<std::size_t>(length)))
                            : std::nullopt;
    gone_ = !answer;
    if (gone_) Kill();
    on_answer_(answer ? &*answer : nullptr);
  }
}

Result<CheckpointProcess> SpawnCheckpointProcess(bool soft) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return FailErrno("make a socket for tessera-checkpoint");
  UniqueFd own(ends[0]), its(ends[1]);
  fcntl(own.Get(), F_SETFL, O_NONBLOCK);
  OwnProgram program = {.name = "tessera-checkpoint", .arguments = {}, .files = {{its.Get(), kChildSocket}}};
  if (soft) program.arguments.emplace_back("--soft");
  const auto pid = Spawn(program);
  if (!pid) return std::unexpected(pid.error());
  return CheckpointProcess{.pid = *pid, .socket = std::move(own)};
}

}  // namespace tessera::server
