#include "cli/top/top_daemon.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "cli/json_fields.h"

namespace tessera::cli::top {

Result<Json> Ask(const ApiClient& client) {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  Json all = {{"time_us", duration_cast<microseconds>(system_clock::now().time_since_epoch()).count()}};
  for (const char* name : {"gpus", "vgpus", "processes"}) {
    const auto answer = client.Get(std::string("/v1/") + name);
    if (!answer) return std::unexpected(answer.error());
    const Json& array = Field(*answer, name);
    if (!array.is_array()) {
      return Fail(EPROTO, std::string("the daemon does not tell its ") + name,
                  "it is of another version; see 'tessera version'");
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
      asking_([this](std::stop_token stop) { AskAgainAndAgain(std::move(stop)); }),
      working_([this](std::stop_token stop) { WorkOff(std::move(stop)); }) {}

Daemon::~Daemon() {
  asking_.request_stop();
  working_.request_stop();
  eventfd_write(stop_fd_.Get(), 1);
}

void Daemon::Do(Order order) {
  const std::lock_guard lock(mutex_);
  orders_.push_back(std::move(order));
  changed_.notify_all();
}

Daemon::News Daemon::Take() {
  eventfd_t count = 0;
  eventfd_read(news_fd_.Get(), &count);
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

void Daemon::Tell() const { eventfd_write(news_fd_.Get(), 1); }

void Daemon::AskAgainAndAgain(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    auto done = std::exchange(done_, {});
    lock.unlock();
    const Nanos begin = MonotonicNow();
    auto answer = Ask(client_);
    lock.lock();
    news_.at = begin;
    news_.answer = std::move(answer);
    std::ranges::move(done, std::back_inserter(news_.done));
    Tell();
    const std::chrono::nanoseconds left(begin + delay_ - MonotonicNow());
    changed_.wait_for(lock, stop, left, [this] { return !done_.empty(); });
  }
}

void Daemon::WorkOff(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !orders_.empty(); })) {
    const Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    auto answer =
        order.method == "PATCH" ? client_.Patch(order.path, order.body) : client_.Post(order.path, order.body);
    lock.lock();
    done_.emplace_back(order, std::move(answer));
    changed_.notify_all();
    if (stop.stop_requested()) return;
  }
}

}  // namespace tessera::cli::top
