#include "server/spaces/mps_daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "base/install/own_program.h"
#include "base/whole_file.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

// For the one user as whom the control daemon runs.
Result<void> MakeFolder(const std::string& path, std::optional<uid_t> user) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FailErrno("cannot make the directory " + path);
  if (user && *user != geteuid() && lchown(path.c_str(), *user, static_cast<gid_t>(-1)) != 0)
    return FailErrno("cannot give away the directory " + path);
  return {};
}

}  // namespace

MpsDaemon::MpsDaemon(EventLoop& loop, MpsPlace place, std::string record, Host host)
    : loop_(loop),
      place_(std::move(place)),
      record_(std::move(record)),
      host_(std::move(host)),
      again_(loop, [this] { OnTimer(); }),
      quitting_(loop) {}

Result<void> MpsDaemon::Open() {
  if (TakeOver()) return {};
  auto started = Start();
  if (!started) again_.ArmIn(kPause);
  return started;
}

bool MpsDaemon::TakeOver() {
  std::ifstream file(record_);
  ProcessName process;
  if (!(file >> process.pid >> process.start) || process.pid <= 0) return false;
  return Watch(process).has_value();
}

Result<void> MpsDaemon::Start() {
  for (const std::string& folder : {place_.pipes, place_.logs}) {
    if (auto made = MakeFolder(folder, place_.user); !made) return made;
  }
  // In the foreground it logs to its output.
  const UniqueFd log(open((record_ + ".log").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!log) return FailErrno("cannot open " + record_ + ".log");
  OwnProgram program = place_.Program({"-f"});
  program.files = {{log.Get(), STDOUT_FILENO}, {log.Get(), STDERR_FILENO}};
  program.lasts = true;  // its server's clients go on while there is no daemon
  const auto pid = Spawn(program);
  if (!pid) return std::unexpected(pid.error());
  // A child that nobody has waited for keeps its pid.
  const auto start = ProcessStart(*pid);
  auto watched = start ? Watch({.pid = *pid, .start = *start}) : std::unexpected(start.error());
  if (watched) {
    watched = ReplaceFile(record_, fmt::format("{} {}\n", *pid, *start), 0600,
                          "without it the next tesserad does not find the control daemon");
  }
  if (watched) return {};
  watch_ = {};
  process_ = {};
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
  return watched;
}

// ESRCH if it has ended.
Result<void> MpsDaemon::Watch(ProcessName process) {
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd) return FailErrno(fmt::format("cannot watch the MPS control daemon, process {}", process.pid));
  const auto start = ProcessStart(process.pid);
  if (!start) return std::unexpected(start.error());
  if (*start != process.start) return Fail(ESRCH, "another process has its pid");
  // Through Post, because a watch cannot end inside its own callback.
  auto watch = loop_.WatchReadable(pidfd.Get(), [this, process, alive = std::weak_ptr(alive_)] {
    loop_.Post([this, process, alive] {
      if (!alive.expired() && process_ == process) OnEnd();
    });
  });
  if (!watch) return std::unexpected(watch.error());
  pidfd_ = std::move(pidfd);
  watch_ = std::move(*watch);
  process_ = process;
  return {};
}

void MpsDaemon::OnEnd() {
  watch_ = {};
  int status = 0;
  const bool child = waitpid(process_.pid, &status, WNOHANG) == process_.pid;
  const pid_t pid = std::exchange(process_, {}).pid;
  pidfd_.Reset();
  if (closing_) return CloseIfEnded();
  log::Warn("MPS control daemon {} of {} ended{}; another one is started in {} s", pid, place_.pipes,
            !child                ? ""
            : WIFSIGNALED(status) ? fmt::format(" by signal {}", WTERMSIG(status))
                                  : fmt::format(" with status {}", WEXITSTATUS(status)),
            kPause / kSecond);
  again_.ArmIn(kPause);
  host_.ended();
}

void MpsDaemon::OnTimer() {
  if (closing_) {  // it does not obey
    if (process_.pid != 0) syscall(SYS_pidfd_send_signal, pidfd_.Get(), SIGKILL, nullptr, 0);
    return;
  }
  if (process_.pid != 0) return;
  if (auto started = Start(); !started) {
    log::Warn("{}", started.error().Text());
    again_.ArmIn(kPause);
  }
}

void MpsDaemon::Close() {
  if (std::exchange(closing_, true)) return;
  quitting_.Start([place = place_] { (void)MpsCommands(place).Quit(); },
                  [this] {
                    again_.ArmIn(kPause);
                    CloseIfEnded();
                  });
}

void MpsDaemon::CloseIfEnded() {
  if (process_.pid != 0 || quitting_.Busy() || std::exchange(closed_, true)) return;
  unlink(record_.c_str());
  host_.closed();
}

}  // namespace tessera::server
