#include "guard/gate/processes.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "guard/gate/borrowed_file.h"

namespace tessera::guard {
namespace {

constexpr std::size_t kMostCachedThreads = 65536;

// Whether `tid` is a thread of `pid` now: numbers of threads are given out again. EPERM: it is, and another user's.
bool IsThreadOf(pid_t tid, pid_t pid) { return syscall(SYS_tgkill, pid, tid, 0) == 0 || errno == EPERM; }

}  // namespace

Result<Processes> Processes::Create(Budget budget) {
  Processes processes;
  processes.budget_ = std::move(budget);
  processes.ends_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!processes.ends_) return FailErrno("epoll_create1");
  return processes;
}

// A pidfd means one process for ever, its number does not.
bool Processes::Alive(const Process& process) const {
  return syscall(SYS_pidfd_send_signal, process.pidfd.Get(), 0, nullptr, 0) == 0 || errno == EPERM;
}

const Processes::Process* Processes::Of(pid_t tid, std::uint64_t tree) {
  if (const auto cached = threads_.find(tid); cached != threads_.end()) {
    const Process* process = Find(cached->second);
    if (process && IsThreadOf(tid, process->pid) && Alive(*process)) return process;
    threads_.erase(cached);
  }
  errno = 0;
  const auto pid = static_cast<pid_t>(StatusField(tid, "Tgid"));
  if (pid <= 0) {
    if (!IsShortage(errno)) errno = ESRCH;
    return nullptr;
  }
  const Process* process = Find(pid);
  if (process && !Alive(*process)) {
    // Its end has not been taken yet, and its number is in use again already: TakeEnded first.
    errno = EAGAIN;
    return nullptr;
  }
  if (!process) process = Add(pid, tree);
  if (!process) return nullptr;
  if (threads_.size() >= kMostCachedThreads) threads_.clear();
  threads_[tid] = pid;
  return process;
}

const Processes::Process* Processes::Add(pid_t pid, std::uint64_t tree) {
  std::size_t& count = trees_[tree];
  if (count >= kMostPerTree) {
    errno = EAGAIN;
    return nullptr;
  }
  Share share;
  if (budget_) {
    if (budget_->fetch_sub(1, std::memory_order_relaxed) <= 0) {
      budget_->fetch_add(1, std::memory_order_relaxed);
      errno = EAGAIN;
      return nullptr;
    }
    share = Share(budget_);
  }
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return nullptr;
  epoll_event event{.events = EPOLLIN, .data = {.fd = pid}};
  if (epoll_ctl(ends_.Get(), EPOLL_CTL_ADD, pidfd.Get(), &event) != 0) return nullptr;
  ++count;
  return &(processes_[pid] = {.share = std::move(share), .pid = pid, .pidfd = std::move(pidfd), .tree = tree});
}

const Processes::Process* Processes::Find(pid_t pid) const {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? nullptr : &found->second;
}

std::vector<pid_t> Processes::OfTree(std::uint64_t tree) const {
  std::vector<pid_t> pids;
  for (const auto& [pid, process] : processes_) {
    if (process.tree == tree) pids.push_back(pid);
  }
  return pids;
}

std::vector<pid_t> Processes::TakeEnded() {
  std::array<epoll_event, 64> events;
  std::vector<pid_t> ended;
  const int count = epoll_wait(ends_.Get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) ended.push_back(events[static_cast<std::size_t>(i)].data.fd);
  for (const pid_t pid : ended) Forget(pid);
  return ended;
}

void Processes::Forget(pid_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  if (const auto tree = trees_.find(found->second.tree); --tree->second == 0) trees_.erase(tree);
  // By hand: a child that was forked meanwhile may hold a duplicate, and closing ours would not remove it.
  epoll_ctl(ends_.Get(), EPOLL_CTL_DEL, found->second.pidfd.Get(), nullptr);
  processes_.erase(found);
}

}  // namespace tessera::guard
