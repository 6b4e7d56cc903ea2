#include "soft/mps/mps_server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "soft/shared/mps_servers.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {
namespace {

// The child. Standard input ends when it shall; standard output takes its ProcessId once it is ready.
[[noreturn]] void Serve(int life, int ready, uid_t user, double percentage, const MpsLog& log) {
  dup2(life, STDIN_FILENO);
  dup2(ready, STDOUT_FILENO);
  // Nothing of the control daemon's may live on here: its lock, its socket, the pipes of other servers.
  closefrom(STDERR_FILENO + 1);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_NAME, "soft-mps-server");
  if (user != geteuid() && setresuid(user, user, user) != 0) _exit(EPERM);
  log.Write("Startup");
  const char* spec = std::getenv("TESSERA_SOFT");
  {
    auto state = SharedState::Attach(SharedState::DefaultPath(), spec == nullptr ? "" : spec);
    if (!state) {
      std::fprintf(stderr, "tessera %s\n", state.error().Text().c_str());
      _exit(ECHILD);
    }
    BecomeMpsServer(**state, percentage);
    const ProcessId self = ProcessId::Self();
    log.Write("Initializing server process");
    static_cast<void>(!write(STDOUT_FILENO, &self, sizeof self));
    char byte;
    while (read(STDIN_FILENO, &byte, 1) != 0) {
    }
    log.Write("Exit");
  }
  _exit(0);
}

}  // namespace

Result<MpsServerProcess> MpsServerProcess::Start(uid_t user, double percentage, const MpsLog& log) {
  int life[2], ready[2];
  if (pipe2(life, O_CLOEXEC) != 0) return FailErrno("make a pipe to the MPS server");
  UniqueFd life_out(life[0]), life_in(life[1]);
  if (pipe2(ready, O_CLOEXEC) != 0) return FailErrno("make a pipe to the MPS server");
  const UniqueFd ready_out(ready[0]);
  UniqueFd ready_in(ready[1]);
  const pid_t pid = fork();
  if (pid < 0) return FailErrno("start the MPS server");
  if (pid == 0) Serve(life_out.Get(), ready_in.Get(), user, percentage, log);
  ready_in.Reset();
  ProcessId process;
  MpsServerProcess server(pid, user, process, std::move(life_in));
  if (read(ready_out.Get(), &server.process_, sizeof process) == sizeof process) return server;
  return Fail(ECHILD, "the MPS server of user " + std::to_string(user) + " ended while it started",
              "see the standard error of the control daemon");
}

MpsServerProcess::MpsServerProcess(MpsServerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), user_(other.user_), process_(other.process_), life_(std::move(other.life_)) {}

MpsServerProcess& MpsServerProcess::operator=(MpsServerProcess&& other) noexcept {
  Stop();
  pid_ = std::exchange(other.pid_, 0);
  user_ = other.user_;
  process_ = other.process_;
  life_ = std::move(other.life_);
  return *this;
}

bool MpsServerProcess::Ended() {
  if (pid_ != 0 && waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = 0;
  return pid_ == 0;
}

void MpsServerProcess::Stop() {
  if (pid_ == 0) return;
  life_.Reset();
  kill(pid_, SIGKILL);  // it may be stopped, and has nothing to put in order
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

}  // namespace tessera::soft
