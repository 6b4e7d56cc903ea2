#include "cli/launch/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "base/clock.h"
#include "base/install/environment.h"
#include "base/install/installation.h"
#include "base/install/run_dir.h"
#include "base/unique_fd.h"
#include "client/json_fields.h"
#include "wire/protocol.h"

namespace tessera::cli {
using client::ApiClient;
using client::BoolField;
using client::IntegerField;
using client::TextField;

namespace {

// A real GPU's driver may take seconds to initialise.
constexpr Nanos kStartLimit = 30 * kSecond;

std::string LogPath(const std::string& run_dir) { return run_dir + "/tesserad.log"; }

// The last line of a daemon's log: why it ended.
std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Takes the lock that a process holds while it starts a daemon; others wait for it instead of starting their own.
Result<UniqueFd> TakeStartLock(const std::string& run_dir) {
  const std::string path = run_dir + "/start.lock";
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return FailErrno("cannot open " + path, "check its owner, or choose another --run-dir");
  while (flock(lock.Get(), LOCK_EX) != 0) {
    if (errno != EINTR) return FailErrno("cannot lock " + path);
  }
  return lock;
}

// Turns this child into the daemon, without this process's terminal, descriptors and vGPU.
[[noreturn]] void BecomeDaemon(const std::vector<const char*>& arguments, int alive, int log) {
  setsid();
  if (fork() != 0)
    _exit(0);  // double fork: the program that this process becomes must not have the daemon as its child
  alive = fcntl(alive, F_DUPFD, 10);  // above the numbers used below, whichever of 0 to 3 were closed
  log = fcntl(log, F_DUPFD, 10);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  dup2(alive, 3);
  closefrom(4);
  ForgetOtherPrograms();
  unsetenv("TESSERA_REAL_LIBCUDA");  // the program's, which may be another GPU's
  signal(SIGHUP, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  (void)!chdir("/");
  execv(arguments[0], const_cast<char* const*>(arguments.data()));
  dprintf(STDERR_FILENO, "cannot execute %s: %s\n", arguments[0], strerror(errno));
  _exit(127);
}

// Starts tesserad. The descriptor reads end of file when it has ended.
Result<UniqueFd> StartDaemon(const Common& common, const std::string& run_dir) {
  const std::string path = Installation::Find().Daemon();
  const std::string soft = common.soft_spec.empty() ? "--soft" : "--soft=" + common.soft_spec;
  std::vector<const char*> arguments = {path.c_str(), "--exit-when-idle", "--run-dir", run_dir.c_str()};
  if (common.soft) arguments.push_back(soft.c_str());
  if (!common.config.empty()) arguments.insert(arguments.end(), {"--config", common.config.c_str()});
  arguments.push_back(nullptr);

  // A new log for each daemon: embedded ones come and go all day.
  const std::string log_path = LogPath(run_dir);
  const UniqueFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return FailErrno("cannot write " + log_path, "check its owner, or choose another --run-dir");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FailErrno("cannot make a pipe");
  UniqueFd watch(ends[0]);
  const UniqueFd alive(ends[1]);
  const pid_t child = fork();
  if (child < 0) return FailErrno("cannot start a process");
  if (child == 0) BecomeDaemon(arguments, alive.Get(), log.Get());
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return watch;
}

Result<DaemonFacts> WaitUntilReady(const ApiClient& client, const UniqueFd& watch, const std::string& run_dir) {
  const Nanos deadline = MonotonicNow() + kStartLimit;
  for (;;) {
    auto facts = AskDaemon(client);
    if (facts || facts.error().code != ECONNREFUSED) return facts;
    pollfd gone = {.fd = watch.Get(), .events = POLLIN, .revents = 0};
    if (poll(&gone, 1, 5) > 0) {
      const std::string why = LastLine(LogPath(run_dir));
      return Fail(ESRCH, "the daemon did not start" + (why.empty() ? "" : ": " + why), "see " + LogPath(run_dir));
    }
    if (MonotonicNow() > deadline) {
      return Fail(ETIMEDOUT, "the daemon started, but does not answer", "see " + LogPath(run_dir));
    }
  }
}

Result<DaemonFacts> FindOrStart(const Common& common, const ApiClient& client, const std::string& run_dir) {
  auto facts = AskDaemon(client);
  if (facts || facts.error().code != ECONNREFUSED) return facts;
  if (auto prepared = PrepareRunDir(run_dir); !prepared) return std::unexpected(prepared.error());
  const auto lock = TakeStartLock(run_dir);
  if (!lock) return std::unexpected(lock.error());
  facts = AskDaemon(client);  // another process may have started one while this one waited for the lock
  if (facts || facts.error().code != ECONNREFUSED) return facts;
  const auto watch = StartDaemon(common, run_dir);
  if (!watch) return std::unexpected(watch.error());
  return WaitUntilReady(client, *watch, run_dir);
}

}  // namespace

Result<DaemonFacts> AskDaemon(const ApiClient& client) {
  const auto answer = client.Get("/healthz");
  if (!answer) return std::unexpected(answer.error());
  DaemonFacts facts{.version = TextField(*answer, "version"),
                    .pid = static_cast<int>(IntegerField(*answer, "pid")),
                    .soft = BoolField(*answer, "soft"),
                    .embedded = BoolField(*answer, "embedded")};
  if (const auto protocol = IntegerField(*answer, "protocol"); protocol != wire::kProtocolVersion) {
    return Fail(EPROTO,
                "the daemon (version " + facts.version + ") speaks protocol " + std::to_string(protocol) +
                    ", this program " + std::to_string(wire::kProtocolVersion),
                "use programs and daemon of one version");
  }
  return facts;
}

Result<DaemonFacts> EnsureDaemon(const Common& common) {
  const std::string run_dir = common.RunDirectory();
  const ApiClient client(run_dir);
  auto facts = FindOrStart(common, client, run_dir);
  if (facts && common.soft && !facts->soft) {
    return Fail(EINVAL, "the daemon in " + run_dir + " manages real GPUs", "omit --soft, or choose another --run-dir");
  }
  return facts;
}

}  // namespace tessera::cli
