#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "server/loop/event_loop.h"

namespace tessera::server {

// Runs one slow job at a time on a thread of its own, which exists only while the job does: what waits for a disk or a
// driver must not hold up the loop.
class Background {
 public:
  explicit Background(EventLoop& loop) : loop_(loop) {}
  Background(const Background&) = delete;
  ~Background() { Wait(); }

  bool Busy() const { return thread_.joinable(); }

  // Waits for the end of a running job; its `done` is not called any more.
  void Wait() {
    if (thread_.joinable()) thread_.join();
    alive_ = std::make_shared<int>();
  }

  // Requires !Busy(). Runs `job` on a thread, then `done` on the loop's, unless the loop ends or Wait is called before
  // that.
  void Start(std::function<void()> job, std::function<void()> done) {
    thread_ = std::thread([this, alive = std::weak_ptr(alive_), job = std::move(job), done = std::move(done)] {
      job();
      loop_.Post([this, alive, done] {
        if (alive.expired()) return;
        thread_.join();
        done();
      });
    });
  }

 private:
  EventLoop& loop_;
  std::thread thread_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // names the job that `done` belongs to
};

}  // namespace tessera::server
