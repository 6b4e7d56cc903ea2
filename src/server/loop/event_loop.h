#pragma once

#include <systemd/sd-event.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::server {

// The daemon's one event loop, on libsystemd's sd-event. Everything in src/server runs on its thread; other threads
// come in through Post and Call only.
class EventLoop {
 public:
  struct Unref {
    void operator()(sd_event_source* source) const { sd_event_source_disable_unref(source); }
  };

  // A watched descriptor or signal. Watching ends with the object, which must not outlive the loop and must not be
  // destroyed inside its own callback.
  class Watch {
   private:
    friend class EventLoop;
    std::unique_ptr<std::function<void()>> callback_;  // first, because the source points to it
    std::unique_ptr<sd_event_source, Unref> source_;
  };

  // A one-shot timer on CLOCK_MONOTONIC, accurate to a microsecond. Moving its deadline to later, or to kNever, does
  // not touch the kernel: the callback may come early and must look at the time itself.
  class Timer {
   public:
    Timer(EventLoop& loop, std::function<void()> callback);
    Timer(const Timer&) = delete;
    void Arm(Nanos at);
    void ArmIn(Nanos delay) { Arm(MonotonicNow() + delay); }

   private:
    static int OnTime(sd_event_source*, std::uint64_t, void* self);
    std::function<void()> callback_;
    std::unique_ptr<sd_event_source, Unref> source_;
    Nanos armed_at_ = kNever;
  };

  // Work that becomes due during events: it is done once after the event, however often that made it due. The object
  // must not outlive the loop.
  class Deferred {
   public:
    Deferred(EventLoop& loop, std::function<void()> callback);
    Deferred(const Deferred&) = delete;
    void MarkDue() { sd_event_source_set_enabled(source_.get(), SD_EVENT_ONESHOT); }

   private:
    static int OnDue(sd_event_source*, void* self);
    std::function<void()> callback_;
    std::unique_ptr<sd_event_source, Unref> source_;
  };

  static Result<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();

  // Calls back whenever `fd` is readable or its peer hung up. The caller keeps the descriptor.
  Result<Watch> WatchReadable(int fd, std::function<void()> callback);

  // Calls back for a signal, which it blocks for the calling thread and for those started later.
  Result<Watch> WatchSignal(int signal, std::function<void()> callback);
  // The same for SIGTERM and SIGINT.
  Result<std::pair<Watch, Watch>> WatchTermination(const std::function<void()>& callback);

  // Runs until Stop. Answers the service manager's watchdog if there is one (sd_event_set_watchdog(3)).
  Result<void> Run();
  void Stop();

  // Does not sleep for so long: an event that must be acted on within microseconds may come, and waking up takes longer
  // on many machines (docs/hardware-log.md). Costs a core while it lasts.
  void SpinFor(Nanos time) { spin_until_ = std::max(spin_until_, MonotonicNow() + time); }

  // Any thread. Runs `task` on the loop's thread; false when the loop has ended.
  bool Post(std::function<void()> task);

  // Any thread but the loop's. Runs `task` there and waits for what it returns; nullopt when the loop ends before that.
  template <typename Task, typename Answer = std::invoke_result_t<Task>>
  std::optional<Answer> Call(Task task) {
    auto promise = std::make_shared<std::promise<Answer>>();
    auto answer = promise->get_future();
    if (!Post([promise = std::move(promise), task = std::move(task)] { promise->set_value(task()); })) return {};
    try {
      return answer.get();
    } catch (const std::future_error&) {
      return {};  // the loop dropped the task
    }
  }

 private:
  EventLoop() = default;
  Result<Watch> Own(int added, sd_event_source* source, std::unique_ptr<std::function<void()>> callback);
  void RunPosted();

  sd_event* event_ = nullptr;
  Nanos spin_until_ = 0;
  UniqueFd posted_fd_;  // eventfd, readable while posted_ is not empty
  Watch posted_watch_;
  Mutex posted_mutex_;
  std::vector<std::function<void()>> posted_ TESSERA_GUARDED_BY(posted_mutex_);
  bool ended_ TESSERA_GUARDED_BY(posted_mutex_) = false;
};

}  // namespace tessera::server
