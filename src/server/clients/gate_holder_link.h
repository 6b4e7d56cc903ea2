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
  // is no holder.
  std::vector<Kept> Take();

  // Keeps the tree from now on, also under a number that it has kept before. Starts a holder if there is none.
  Result<void> Hold(std::uint64_t number, int listener, int record);
  void Drop(std::uint64_t number);

 private:
  bool Connect(std::vector<Kept>& kept);
  Result<void> Start();
  void Lost();

  EventLoop& loop_;
  const std::string path_;
  const Nanos grace_;
  const std::function<void()> on_loss_;
  UniqueFd socket_;  // empty: there is no holder
  EventLoop::Watch watch_;
  pid_t pid_ = -1;  // of a holder that is this process's child
};

}  // namespace tessera::server
