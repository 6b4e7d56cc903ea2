#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/process/process_start.h"
#include "base/unique_fd.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// The programs that an earlier daemon had on one GPU, that live, and that have not attached to this daemon yet. Runs on
// the loop's thread.
class Survivors {
 public:
  // `fewer` is called when one of them has ended. The loop outlives the object.
  Survivors(EventLoop& loop, std::function<void()> fewer);
  Survivors(const Survivors&) = delete;

  // An earlier daemon had this program. Ignored if that is known, or the program has ended.
  void Expect(const ProcessName& program, Nanos now);
  // It is back.
  void Attached(pid_t pid) { missing_.erase(pid); }

  std::size_t Missing() const;
  Nanos Since() const { return since_; }  // when the first of them was expected
  std::vector<ProcessName> All() const;

 private:
  struct Survivor {
    std::uint64_t start = 0;
    UniqueFd process;  // a pidfd
    EventLoop::Watch end;
    bool ended = false;
  };

  EventLoop& loop_;
  const std::function<void()> fewer_;
  std::map<pid_t, Survivor> missing_;
  EventLoop::Deferred forget_;
  Nanos since_ = 0;
};

}  // namespace tessera::server
