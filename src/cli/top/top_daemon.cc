#include "cli/top/top_daemon.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "client/json_fields.h"

namespace tessera::cli::top {
using client::ApiClient;
using client::Field;
using client::Json;

Result<Json> Ask(const ApiClient& client) {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  Json all = {{"time_us", duration_cast<microseconds>(system_clock::now().time_since_epoch()).count()}};
  for (const char* name : {"gpus", "vgpus", "processes"}) {
    const auto answer = client.Get(std::string("/v1/") + name);
    if (!answer) return std::unexpected(answer.error());
    const Json& array = Field(*answer, name);
    if (!array.is_array()) {
      return Fail(EPROTO, std::string("the daemon's answer lacks ") + name,
                  "use programs and daemon of one version; see 'tessera version'");
    }
    all[name] = array;
  }
  return all;
}

Daemon::Daemon(const std::string& run_dir, Nanos delay)
    : delay_(delay),
      stop_fd_(eventfd(0, EFD_CLOEXEC)),
      news_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      client_(run_dir, stop_fd_.Get()),
      asking_([this] { AskAgainAndAgain(); }),
      working_([this] { WorkOff(); }) {}

Daemon::~Daemon() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  eventfd_write(stop_fd_.Get(), 1);
  asking_.join();
  working_.join();
}

void Daemon::Do(Order order) {
  const MutexLock lock(mutex_);
  orders_.push_back(std::move(order));
  changed_.NotifyAll();
}

Daemon::News Daemon::Take() {
  eventfd_t count = 0;
  eventfd_read(news_fd_.Get(), &count);
  const MutexLock lock(mutex_);
  return std::exchange(news_, {});
}

void Daemon::Tell() const { eventfd_write(news_fd_.Get(), 1); }

void Daemon::AskAgainAndAgain() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    auto done = std::exchange(done_, {});
    lock.Unlock();
    const auto next = std::chrono::steady_clock::now() + std::chrono::nanoseconds(delay_);
    const Nanos begin = MonotonicNow();
    auto answer = Ask(client_);
    lock.Lock();
    news_.at = begin;
    news_.answer = std::move(answer);
    std::ranges::move(done, std::back_inserter(news_.done));
    Tell();
    while (!stopping_ && done_.empty() && changed_.WaitUntil(mutex_, next)) {
    }
  }
}

void Daemon::WorkOff() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stopping_ && orders_.empty()) changed_.Wait(mutex_);
    if (orders_.empty()) return;
    const Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.Unlock();
    auto answer =
        order.method == "PATCH" ? client_.Patch(order.path, order.body) : client_.Post(order.path, order.body);
    lock.Lock();
    done_.emplace_back(order, std::move(answer));
    changed_.NotifyAll();
    if (stopping_) return;
  }
}

}  // namespace tessera::cli::top
