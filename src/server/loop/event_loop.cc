#include "server/loop/event_loop.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace tessera::server {
namespace {

Error SystemdError(const char* what, int negative_errno) {
  return {-negative_errno, std::string(what) + ": " + std::strerror(-negative_errno), ""};
}

int OnWatch(sd_event_source*, int, std::uint32_t, void* callback) {
  (*static_cast<std::function<void()>*>(callback))();
  return 0;
}

int OnSignal(sd_event_source*, const signalfd_siginfo*, void* callback) { return OnWatch(nullptr, 0, 0, callback); }

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  if (int r = sd_event_new(&loop->event_); r < 0) return std::unexpected(SystemdError("cannot make an event loop", r));
  sd_event_set_watchdog(loop->event_, 1);
  loop->posted_fd_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->posted_fd_) return FailErrno("eventfd");
  auto watch = loop->WatchReadable(loop->posted_fd_.Get(), [self = loop.get()] { self->RunPosted(); });
  if (!watch) return std::unexpected(watch.error());
  loop->posted_watch_ = std::move(*watch);
  return loop;
}

EventLoop::~EventLoop() {
  posted_watch_ = {};
  sd_event_unref(event_);
}

Result<EventLoop::Watch> EventLoop::Own(int added, sd_event_source* source,
                                        std::unique_ptr<std::function<void()>> callback) {
  if (added < 0) return std::unexpected(SystemdError("cannot watch an event", added));
  Watch watch;
  watch.callback_ = std::move(callback);
  watch.source_.reset(source);
  return watch;
}

Result<EventLoop::Watch> EventLoop::WatchReadable(int fd, std::function<void()> callback) {
  auto owned = std::make_unique<std::function<void()>>(std::move(callback));
  sd_event_source* source = nullptr;
  const int added = sd_event_add_io(event_, &source, fd, EPOLLIN, OnWatch, owned.get());
  return Own(added, source, std::move(owned));
}

Result<EventLoop::Watch> EventLoop::WatchSignal(int signal, std::function<void()> callback) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto owned = std::make_unique<std::function<void()>>(std::move(callback));
  sd_event_source* source = nullptr;
  const int added = sd_event_add_signal(event_, &source, signal, OnSignal, owned.get());
  return Own(added, source, std::move(owned));
}

Result<std::pair<EventLoop::Watch, EventLoop::Watch>> EventLoop::WatchTermination(
    const std::function<void()>& callback) {
  auto terminate = WatchSignal(SIGTERM, callback);
  if (!terminate) return std::unexpected(terminate.error());
  auto interrupt = WatchSignal(SIGINT, callback);
  if (!interrupt) return std::unexpected(interrupt.error());
  return std::pair(std::move(*terminate), std::move(*interrupt));
}

Result<void> EventLoop::Run() {
  int r = 0;
  while (r >= 0 && sd_event_get_state(event_) != SD_EVENT_FINISHED) {
    const bool spin = spin_until_ != 0 && MonotonicNow() < spin_until_;
    r = sd_event_run(event_, spin ? 0 : UINT64_MAX);
  }
  std::vector<std::function<void()>> dropped;  // destroyed without the lock: their waiters wake and may post again
  {
    MutexLock lock(posted_mutex_);
    ended_ = true;
    dropped.swap(posted_);
  }
  if (r < 0) return std::unexpected(SystemdError("the event loop failed", r));
  return {};
}

void EventLoop::Stop() { sd_event_exit(event_, 0); }

bool EventLoop::Post(std::function<void()> task) {
  MutexLock lock(posted_mutex_);
  if (ended_) return false;
  posted_.push_back(std::move(task));
  eventfd_write(posted_fd_.Get(), 1);
  return true;
}

void EventLoop::RunPosted() {
  eventfd_t count;
  eventfd_read(posted_fd_.Get(), &count);
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(posted_mutex_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

EventLoop::Timer::Timer(EventLoop& loop, std::function<void()> callback) : callback_(std::move(callback)) {
  sd_event_source* source = nullptr;
  constexpr std::uint64_t kAccuracyUs = 1;  // 0 would mean sd-event's default of 250 ms
  // Fails only without memory or a clock; the null source then makes Arm do nothing.
  sd_event_add_time(loop.event_, &source, CLOCK_MONOTONIC, UINT64_MAX, kAccuracyUs, OnTime, this);
  source_.reset(source);
  sd_event_source_set_enabled(source, SD_EVENT_OFF);
}

void EventLoop::Timer::Arm(Nanos at) {
  if (armed_at_ <= at) return;
  armed_at_ = at;
  sd_event_source_set_time(source_.get(), static_cast<std::uint64_t>((at + kMicrosecond - 1) / kMicrosecond));
  sd_event_source_set_enabled(source_.get(), SD_EVENT_ONESHOT);
}

int EventLoop::Timer::OnTime(sd_event_source*, std::uint64_t, void* self) {
  auto* timer = static_cast<Timer*>(self);
  timer->armed_at_ = kNever;
  timer->callback_();
  return 0;
}

EventLoop::Deferred::Deferred(EventLoop& loop, std::function<void()> callback) : callback_(std::move(callback)) {
  sd_event_source* source = nullptr;
  sd_event_add_defer(loop.event_, &source, OnDue, this);  // fails only without memory
  source_.reset(source);
  sd_event_source_set_enabled(source, SD_EVENT_OFF);
}

int EventLoop::Deferred::OnDue(sd_event_source*, void* self) {
  static_cast<Deferred*>(self)->callback_();
  return 0;
}

}  // namespace tessera::server
