#include "channel/watchdog/watchdog.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "base/install/lasting_groups.h"
#include "base/seqpacket.h"
#include "channel/watchdog/move_guard_page.h"

namespace tessera::channel {
namespace {

// A message of the daemon to the child: with a file, to guard the process's thaw by it; without, no longer to.
struct GuardMessage {
  pid_t pid = 0;
  std::uint32_t gpu = 0;
  std::uint32_t offset = 0;
};

// Without close_range(2), which Linux 5.9 brought, one by one.
void CloseRange(unsigned first, unsigned last) {
  if (close_range(first, last, 0) == 0) return;
  const auto end = static_cast<unsigned>(std::max(sysconf(_SC_OPEN_MAX), 0L));
  for (unsigned fd = first; fd <= last && fd < end; ++fd) close(static_cast<int>(fd));
}

// Since 1970.
Nanos TouchedAt(const UniqueFd& file) {
  struct stat status{};
  return file && fstat(file.Get(), &status) == 0 ? status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec : 0;
}

// The child: all that it does and knows.
class Child {
 public:
  Child(WatchdogPage& page, UniqueFd daemon, UniqueFd kept, Watchdog::OpenControl open, Nanos timeout,
        const sigset_t& unblocked)
      : page_(page),
        daemon_(std::move(daemon)),
        kept_(std::move(kept)),
        open_(std::move(open)),
        timeout_(timeout),
        unblocked_(unblocked) {}

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
    for (UniqueFd* mine : {&daemon_, &kept_}) {
      if (*mine && mine->Get() <= STDERR_FILENO) mine->Reset(fcntl(mine->Get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    }
    if (const int null = open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) {
      dup2(null, STDIN_FILENO);
      dup2(null, STDOUT_FILENO);
    }
    unsigned from = STDERR_FILENO + 1;
    for (const int mine : {std::min(daemon_.Get(), kept_.Get()), std::max(daemon_.Get(), kept_.Get())}) {
      if (mine < 0) continue;
      if (static_cast<unsigned>(mine) > from) CloseRange(from, static_cast<unsigned>(mine) - 1);
      from = static_cast<unsigned>(mine) + 1;
    }
    CloseRange(from, ~0U);
    static_cast<void>(chdir("/"));  // a directory that is in use cannot be unmounted
  }

  // Hears what the daemon says meanwhile.
  bool DaemonEndsWithin(Nanos time) {
    pollfd daemon = {daemon_.Get(), POLLIN, 0};
    while (poll(&daemon, 1, static_cast<int>(time / kMillisecond)) > 0) {
      GuardMessage message;
      UniqueFd file;
      const ssize_t length = ReceivePacket(daemon_.Get(), std::as_writable_bytes(std::span(&message, 1)), &file);
      if (length == 0 || (length < 0 && errno == ECONNRESET)) return true;
      if (length != sizeof message || message.offset > MoveGuardPage::kBytes - sizeof(MoveGuard)) continue;
      guards_.erase({message.pid, message.gpu});
      if (file) guards_.emplace(std::pair(message.pid, message.gpu), MoveGuardPage(file.Get(), message.offset));
      time = 0;
    }
    return false;
  }

  [[noreturn]] void LastThaw() {
    constexpr int kTries = 10;
    const Nanos patience = MonotonicNow() + 10 * kSecond;
    const Nanos touched = TouchedAt(kept_);
    int tries = 0;
    while (!ReadFrozen(page_).empty() && tries < kTries && MonotonicNow() < patience) {
      const Thawed thawed = Thaw("the daemon has ended");
      if (thawed == Thawed::kAll || thawed == Thawed::kNothing) break;
      if (thawed == Thawed::kFailed) ++tries;
      if (TouchedAt(kept_) != touched) break;  // the next daemon waits, and thaws the others
      poll(nullptr, 0, thawed == Thawed::kFailed ? 200 : 1);
    }
    for (const auto& [key, target] : ReadFrozen(page_)) {
      if (!done_.contains(key) && !MayRun(key))
        Say("the daemon has ended", "process " + std::to_string(key.first) +
                                        " stays frozen: its memory is being moved, and it does not say that it "
                                        "could go on. The next daemon thaws it");
    }
    _exit(0);
  }

  // A daemon that comes back at this moment waits for the end, or is seen here: each says what it does before it looks
  // at what the other does.
  bool Undo(Nanos last_beat) {
    page_.undoing = 1;
    const bool undone = page_.heartbeat == last_beat && Thaw("the daemon hangs") == Thawed::kAll;
    page_.undoing = 0;
    return undone;
  }

  using Key = std::pair<pid_t, std::uint32_t>;
  enum class Thawed { kNothing, kAll, kSome, kFailed };

  // A process must not run on one GPU while its memory on another is moved, which it may reach from there.
  bool MayRun(const Key& key) const {
    const pid_t pid = key.first;
    for (auto at = guards_.lower_bound({pid, 0}); at != guards_.end() && at->first.first == pid; ++at) {
      if (!at->second.Release()) return kill(pid, 0) != 0;
    }
    return true;
  }

  // Thaws who may run. kSome: others may not yet.
  Thawed Thaw(const char* why) {
    // The daemon was here since the last time, and froze them again.
    if (page_.tripped == 0) done_.clear();
    auto frozen = ReadFrozen(page_);
    if (frozen.empty()) return Thawed::kNothing;
    const std::size_t noted = std::erase_if(frozen, [&](const auto& each) { return !MayRun(each.first); });
    std::erase_if(frozen, [&](const auto& each) { return done_.contains(each.first); });
    if (frozen.empty()) return noted > 0 ? Thawed::kSome : Thawed::kAll;
    const auto control = open_();
    if (!control) {
      Say(why, "cannot thaw " + std::to_string(frozen.size()) + " processes: " + control.error().Text());
      return Thawed::kFailed;
    }
    bool all = true;
    for (const auto& [key, target] : frozen) {
      const auto& [pid, gpu] = key;
      const std::string who = "process " + std::to_string(pid) + " on GPU " + std::to_string(gpu);
      // Twice, as a daemon before this one may have frozen it as well, in the middle of a move: RM counts.
      auto thawed = (*control)->Thaw(gpu, {&target, 1}, Reach::kAll);
      if (thawed) thawed = (*control)->Thaw(gpu, {&target, 1}, Reach::kAll);
      MarkUndone(page_, pid, gpu);
      all &= thawed.has_value();
      if (thawed) done_.insert(key);
      Say(why, thawed ? "thawed " + who : "cannot thaw " + who + ": " + thawed.error().Text());
    }
    page_.tripped = 1;
    return !all ? Thawed::kFailed : noted > 0 ? Thawed::kSome : Thawed::kAll;
  }

  static void Say(const char* why, const std::string& what) {
    dprintf(STDERR_FILENO, "tesserad watchdog: %s: %s\n", why, what.c_str());
  }

  WatchdogPage& page_;
  UniqueFd daemon_;  // at its end when the daemon is
  UniqueFd kept_;    // until the end
  std::map<Key, MoveGuardPage> guards_;
  std::set<Key> done_;  // thawed since the daemon was told last
  const Watchdog::OpenControl open_;
  const Nanos timeout_;
  const sigset_t unblocked_;
};

}  // namespace

Result<std::unique_ptr<Watchdog>> Watchdog::Start(OpenControl open, Nanos timeout, UniqueFd kept) {
  void* bytes = mmap(nullptr, sizeof(WatchdogPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return FailErrno("watchdog: get memory");
  auto* page = new (bytes) WatchdogPage();
  page->heartbeat = MonotonicNow();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    munmap(bytes, sizeof(WatchdogPage));
    return FailErrno("watchdog: make a socket");
  }
  UniqueFd reading(ends[0]), writing(ends[1]);
  fcntl(writing.Get(), F_SETFL, O_NONBLOCK);  // the daemon waits for nobody
  // No signal may find the child before it ignores it.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) {
    writing.Reset();
    Child(*page, std::move(reading), std::move(kept), std::move(open), timeout, before).Run();
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    munmap(bytes, sizeof(WatchdogPage));
    return FailErrno("watchdog: fork");
  }
  PutIntoLastingGroups(pid);  // it thaws when we have ended
  return std::unique_ptr<Watchdog>(new Watchdog(page, pid, std::move(writing)));
}

void Watchdog::HeedMoveGuard(pid_t pid, std::uint32_t gpu, int file, std::uint32_t offset) {
  const GuardMessage message{.pid = pid, .gpu = gpu, .offset = offset};
  // A child that is gone guards nothing, and Beat says so.
  if (!SendPacket(alive_.Get(), std::as_bytes(std::span(&message, 1)), file) && errno == EAGAIN)
    dprintf(STDERR_FILENO, "tesserad: the watchdog does not listen: process %d may be thawed too early\n", pid);
}

void Watchdog::DropMoveGuard(pid_t pid, std::uint32_t gpu) { HeedMoveGuard(pid, gpu, -1, 0); }

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
