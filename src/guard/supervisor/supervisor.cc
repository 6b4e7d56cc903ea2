#include "guard/supervisor/supervisor.h"

#include <linux/capability.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/fault.h"
#include "guard/supervisor/system_calls.h"

// Linux 6.6: the caller runs on the supervisor's core at once when it is answered, and the other way round.
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif

namespace tessera::guard {
namespace {

constexpr std::size_t kWake = 0, kEnds = 1, kFirstListener = 2;  // of watched_

void GiveUpAdministration() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};  // this thread
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
  if (syscall(SYS_capget, &header, data.data()) != 0) return;
  data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
  syscall(SYS_capset, &header, data.data());
}

int Timeout(Nanos at) {
  if (at == kNever) return -1;
  return static_cast<int>(std::clamp<Nanos>((at - MonotonicNow()) / kMillisecond + 1, 0, 1000));
}

}  // namespace

// An answer to a notification, in the size that this kernel has it. The notification is in the record.
struct Supervisor::Buffers {
  std::vector<std::uint64_t> answer;

  bool Prepare() {
    seccomp_notif_sizes sizes{};
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0) return false;
    errno = ENOTSUP;
    if (sizes.seccomp_notif > sizeof(CallInHand::notification)) return false;
    answer.resize(std::max<std::size_t>(sizes.seccomp_notif_resp, sizeof(seccomp_notif_resp)) / 8 + 1);
    return true;
  }
};

Supervisor::Supervisor(std::unique_ptr<KernelBoundary> boundary, TreeRecord record, std::unique_ptr<Buffers> buffers)
    : boundary_(std::move(boundary)), record_(std::move(record)), buffers_(std::move(buffers)) {}

Result<std::unique_ptr<Supervisor>> Supervisor::Start(SupervisorHooks hooks, SupervisorOptions options,
                                                      TreeRecord record, std::unique_ptr<KernelBoundary> boundary) {
  auto buffers = std::make_unique<Buffers>();
  if (!buffers->Prepare()) return FailErrno("this kernel has no seccomp user notification", "use Linux 5.7 or later");
  if (!boundary) boundary = std::make_unique<KernelBoundary>();
  std::unique_ptr<Supervisor> supervisor(new Supervisor(std::move(boundary), std::move(record), std::move(buffers)));
  supervisor->ended_ = hooks.ended;
  auto gate = IoctlGate::Create(std::move(hooks), options, *supervisor->boundary_, supervisor->record_);
  if (!gate) return std::unexpected(gate.error());
  supervisor->gate_ = std::make_unique<IoctlGate>(std::move(*gate));
  supervisor->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!supervisor->wake_) return FailErrno("cannot watch the kernel gate");
  supervisor->Watch(supervisor->wake_.Get());
  supervisor->Watch(supervisor->gate_->EndedFd());
  // Signals are the process's other threads' business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    supervisor->thread_ = std::thread([self = supervisor.get()] { self->Run(); });
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started)
    return Fail(EAGAIN, "cannot start the kernel gate's thread", "raise the limit on processes (ulimit -u)");
  return supervisor;
}

Supervisor::~Supervisor() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  Wake();
  thread_.join();
}

std::uint64_t Supervisor::Add(UniqueFd listener) {
  // Not in kernels before 6.6; it only makes the answer come sooner.
  ioctl(listener.Get(), SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
  std::uint64_t id;
  {
    const MutexLock lock(mutex_);
    id = ++last_id_;
    added_.emplace_back(id, std::move(listener));
  }
  Wake();
  return id;
}

void Supervisor::Remove(std::uint64_t listener) {
  {
    const MutexLock lock(mutex_);
    removed_.push_back(listener);
  }
  Wake();
}

void Supervisor::Wake() { eventfd_write(wake_.Get(), 1); }

IoctlGate::Counts Supervisor::Counts() const {
  return {.passed = passed_,
          .executed = executed_,
          .refused = refused_,
          .out_of_memory = out_of_memory_,
          .unknown = unknown_};
}

void Supervisor::Publish() {
  const IoctlGate::Counts& total = gate_->Total();
  passed_.store(total.passed, std::memory_order_relaxed);
  executed_.store(total.executed, std::memory_order_relaxed);
  refused_.store(total.refused, std::memory_order_relaxed);
  out_of_memory_.store(total.out_of_memory, std::memory_order_relaxed);
  unknown_.store(total.unknown, std::memory_order_relaxed);
}

// poll(2) and not epoll: with SYNC_WAKE_UP the kernel wakes this thread on the core of the program, which goes to sleep
// there, and epoll loses that wish on the way. A thread that wakes up on another core costs three times as much.
void Supervisor::Run() {
  pthread_setname_np(pthread_self(), "tessera-guard");
  GiveUpAdministration();
  for (bool go_on = true; go_on;) {
    const std::size_t watched = leaves_ ? kEnds : watched_.size();
    if (poll(watched_.data(), watched, leaves_ ? -1 : Timeout(gate_->NextCheck())) < 0) continue;
    if (!leaves_) ServeListeners();
    const Nanos next = gate_->NextCheck();
    if (watched_[kEnds].revents != 0 || (next != kNever && MonotonicNow() >= next)) gate_->Check();
    Publish();
    if (watched_[kWake].revents != 0) go_on = TakeRequests();
  }
}

void Supervisor::ServeListeners() {
  // From the last to the first: what ends is taken out.
  for (std::size_t i = listeners_.size(); i-- > 0 && !leaves_;) {
    const short events = watched_[kFirstListener + i].revents;
    const bool lives = events == 0 || ((events & POLLIN) != 0 && ServeOne(listeners_[i]));
    if (!lives) End(listeners_[i].id, true);
  }
}

// False: the thread is to end.
bool Supervisor::TakeRequests() {
  eventfd_t value;
  eventfd_read(wake_.Get(), &value);
  std::vector<std::pair<std::uint64_t, UniqueFd>> added;
  std::vector<std::uint64_t> removed;
  {
    const MutexLock lock(mutex_);
    if (stop_) return false;
    added.swap(added_);
    removed.swap(removed_);
  }
  for (auto& [id, listener] : added) {
    Watch(listener.Get());
    listeners_.push_back({.id = id, .fd = std::move(listener)});
    if (!listeners_.back().fd) {
      End(id, true);
    } else if (record_.Call().Id() != 0) {
      Answer(listeners_.back());  // of the daemon before this one
    }
  }
  for (const std::uint64_t id : removed) End(id, false);
  return true;
}

void Supervisor::Watch(int fd) { watched_.push_back({.fd = fd, .events = POLLIN, .revents = 0}); }

void Supervisor::End(std::uint64_t id, bool tell) {
  const auto listener = std::find_if(listeners_.begin(), listeners_.end(), [&](const auto& l) { return l.id == id; });
  if (listener == listeners_.end()) return;
  watched_.erase(watched_.begin() + kFirstListener + (listener - listeners_.begin()));
  listeners_.erase(listener);
  gate_->TreeEnded(id);
  if (tell) ended_(id);
}

// One call, so that a program that makes many does not keep the others waiting. False: it is no
// listener, or none any more, and would be readable for ever.
bool Supervisor::ServeOne(const Listener& listener) {
  CallInHand& hand = record_.Call();
  hand.notification.fill(0);
  hand.stage = CallInHand::Stage::kReceived;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // It does not wait: a call is there, or was (ENOENT: its thread was killed since).
  if (ioctl(listener.fd.Get(), SECCOMP_IOCTL_NOTIF_RECV, hand.notification.data()) != 0)
    return errno == ENOENT || errno == EINTR;
  PassFault("gate.call.received");
  Answer(listener);
  return true;
}

void Supervisor::Answer(const Listener& listener) {
  CallInHand& hand = record_.Call();
  auto* notification = reinterpret_cast<seccomp_notif*>(hand.notification.data());
  const auto waiting = [&] { return ioctl(listener.fd.Get(), SECCOMP_IOCTL_NOTIF_ID_VALID, &notification->id) == 0; };
  const seccomp_data& data = notification->data;
  const IoctlGate::Answer answer = gate_->Serve({.tid = static_cast<pid_t>(notification->pid),
                                                 .tree = listener.id,
                                                 .fd = static_cast<int>(data.args[0]),
                                                 .request = data.args[1] & 0xffffffff,
                                                 .address = data.args[2],
                                                 .foreign = data.arch != kArchitecture || data.nr != kIoctl},
                                                waiting);
  if (answer.leave) {
    leaves_ = true;
    return;
  }
  PassFault("gate.call.decided");
  std::fill(buffers_->answer.begin(), buffers_->answer.end(), 0);
  auto* response = reinterpret_cast<seccomp_notif_resp*>(buffers_->answer.data());
  response->id = notification->id;
  response->flags = answer.pass ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0;
  response->error = answer.pass ? 0 : answer.result;
  gate_->Done(ioctl(listener.fd.Get(), SECCOMP_IOCTL_NOTIF_SEND, response) == 0);
  hand.notification[0] = 0;
}

}  // namespace tessera::guard
