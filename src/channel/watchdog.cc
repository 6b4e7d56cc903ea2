#include "channel/watchdog.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>

namespace tessera::channel {
namespace {

// What the child does, and all that it knows.
class Child {
 public:
  Child(WatchdogPage& page, UniqueFd daemon, Watchdog::OpenControl open, Nanos timeout, const sigset_t& unblocked)
      : page_(page), daemon_(std::move(daemon)), open_(std::move(open)), timeout_(timeout), unblocked_(unblocked) {}

  [[noreturn]] void Run() {
    Settle();
    // Once is enough for each time that the daemon hangs: after a beat that was its last for long.
    Nanos undone_after = -1;
    for (;;) {
      if (DaemonEndsWithin(std::clamp(timeout_ / 5, kMillisecond, kSecond))) LastThaw();
      const Nanos beat = page_.heartbeat.load(std::memory_order_relaxed);
      if (MonotonicNow() - beat <= timeout_ || beat == undone_after) continue;
      if (Undo(beat)) undone_after = beat;
    }
  }

 private:
  // Holds nothing of what the daemon had open, and is not ended by what ends the daemon: a Ctrl-C, the service manager.
  void Settle() {
    // The kernel keeps 15 characters.
    prctl(PR_SET_NAME, "tesserad-wdog");
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) signal(number, SIG_IGN);
    sigprocmask(SIG_SETMASK, &unblocked_, nullptr);
    if (daemon_.Get() <= STDERR_FILENO) daemon_.Reset(fcntl(daemon_.Get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (const int null = open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) {
      dup2(null, STDIN_FILENO);
      dup2(null, STDOUT_FILENO);
    }
    const auto mine = static_cast<unsigned>(daemon_.Get());
    if (mine > 3) close_range(3, mine - 1, 0);
    close_range(mine + 1, ~0U, 0);
    static_cast<void>(chdir("/"));  // a directory that is in use cannot be unmounted
  }

  bool DaemonEndsWithin(Nanos time) const {
    pollfd daemon = {daemon_.Get(), POLLIN, 0};
    if (poll(&daemon, 1, static_cast<int>(time / kMillisecond)) <= 0) return false;
    char byte;
    return read(daemon_.Get(), &byte, 1) == 0;
  }

  [[noreturn]] void LastThaw() {
    constexpr int kTries = 10;
    for (int i = 0; i < kTries && !ReadFrozen(page_).empty() && !Thaw("the daemon has ended"); ++i)
      poll(nullptr, 0, 200);
    _exit(0);
  }

  // A daemon that comes back at this moment waits for the end, or is seen here: each says what it does before it looks
  // at what the other does.
  bool Undo(Nanos last_beat) {
    page_.undoing = 1;
    const bool undone = page_.heartbeat == last_beat && Thaw("the daemon hangs");
    page_.undoing = 0;
    return undone;
  }

  // Whether there was something to thaw, and all of it runs again.
  bool Thaw(const char* why) {
    const auto frozen = ReadFrozen(page_);
    if (frozen.empty()) return false;
    const auto control = open_();
    if (!control) {
      Say(why, "cannot thaw " + std::to_string(frozen.size()) + " processes: " + control.error().Text());
      return false;
    }
    bool all = true;
    for (const auto& [key, target] : frozen) {
      const auto& [pid, gpu] = key;
      const std::string who = "process " + std::to_string(pid) + " on GPU " + std::to_string(gpu);
      const auto thawed = (*control)->Thaw(gpu, {&target, 1}, Reach::kAll);
      all &= thawed.has_value();
      Say(why, thawed ? "thawed " + who : "cannot thaw " + who + ": " + thawed.error().Text());
    }
    page_.tripped = 1;
    return all;
  }

  static void Say(const char* why, const std::string& what) {
    dprintf(STDERR_FILENO, "tesserad watchdog: %s: %s\n", why, what.c_str());
  }

  WatchdogPage& page_;
  UniqueFd daemon_;  // the reading end: at its end when the daemon is
  const Watchdog::OpenControl open_;
  const Nanos timeout_;
  const sigset_t unblocked_;
};

}  // namespace

Result<std::unique_ptr<Watchdog>> Watchdog::Start(OpenControl open, Nanos timeout) {
  void* bytes = mmap(nullptr, sizeof(WatchdogPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return FailErrno("watchdog: get memory");
  auto* page = new (bytes) WatchdogPage();
  page->heartbeat = MonotonicNow();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    munmap(bytes, sizeof(WatchdogPage));
    return FailErrno("watchdog: make a pipe");
  }
  UniqueFd reading(ends[0]), writing(ends[1]);
  // No signal may find the child before it ignores it.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) {
    writing.Reset();
    Child(*page, std::move(reading), std::move(open), timeout, before).Run();
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    munmap(bytes, sizeof(WatchdogPage));
    return FailErrno("watchdog: fork");
  }
  return std::unique_ptr<Watchdog>(new Watchdog(page, pid, std::move(writing)));
}

bool Watchdog::Beat() {
  constexpr int kPatienceMs = 1000;
  page_->heartbeat = MonotonicNow();
  for (int i = 0; page_->undoing != 0 && i < kPatienceMs; ++i) poll(nullptr, 0, 1);
  page_->undoing = 0;  // it was killed in the middle, or hangs itself
  if (!gone_ && waitpid(pid_, nullptr, WNOHANG) == pid_) {
    gone_ = true;
    dprintf(
        STDERR_FILENO,
        "tesserad: the watchdog is gone: should this daemon die, what is frozen by policy stays so until the next\n");
  }
  return page_->tripped.exchange(0) != 0;
}

Watchdog::~Watchdog() {
  alive_.Reset();
  while (!gone_ && waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  munmap(page_, sizeof(WatchdogPage));
}

}  // namespace tessera::channel
