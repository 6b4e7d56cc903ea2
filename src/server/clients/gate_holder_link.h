#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "guard/record/tree_record.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// The daemon's line to its gate holder (guard/holder/gate_holder.h), the process that keeps the programs behind the
// kernel gate for the next daemon. It is started with the first such program. On the loop's thread.
class GateHolderLink {
 public:
  // A tree that a daemon before this one left.
  struct Kept {
    std::uint64_t number = 0;
    UniqueFd listener, record;
  };

  // `path`: of the holder's socket. `grace`: how long calls wait after this daemon's end. `on_loss`: the holder is
  // gone, and another one is to be started by holding all trees again. The loop outlives the object.
  GateHolderLink(EventLoop& loop, std::string path, Nanos grace, std::function<void()> on_loss)
      : loop_(loop), path_(std::move(path)), grace_(grace), on_loss_(std::move(on_loss)) {}

  // Takes what the holder of an earlier daemon keeps; that holder stays. Waits for it, for 10 s at most. None if there
  // is no holder; the log says so if there should be one.
  std::vector<Kept> Take();

  // Starts a holder if there is none, which may take 10 s. After a failure, fails at once for a while.
  Result<void> Ensure();
  // Keeps the tree from now on, also under a number that it has kept before. Ensures that there is a holder. EAGAIN: it
  // has not read yet what it was told before.
  Result<void> Hold(std::uint64_t number, int listener, int record);
  void Drop(std::uint64_t number);

 private:
  bool Connect(std::vector<Kept>& kept);
  Result<void> Start();
  void Reap();
  void Lost();

  EventLoop& loop_;
  const std::string path_;
  const Nanos grace_;
  const std::function<void()> on_loss_;
  UniqueFd socket_;  // empty: there is no holder
  EventLoop::Watch watch_;
  std::vector<pid_t> children_;  // holders that this process started, until they were waited for
  Nanos failed_at_ = 0;          // when none could be started; 0: never since there was one
};

}  // namespace tessera::server
