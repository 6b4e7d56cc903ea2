#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "sched/residency/residency_state.h"

namespace tessera::plan {

// A batch of a program's memory that is moved without a break.
struct Move {
  sched::ProcessId process;
  std::uint64_t bytes;
  Nanos done;
};

// One direction between a GPU and host memory: does what is ordered in turn, a batch of each program at a time.
class MoveLink {
 public:
  MoveLink(double bytes_per_second, std::uint64_t batch) : bytes_per_second_(bytes_per_second), batch_(batch) {}

  void Order(sched::ProcessId process, std::uint64_t bytes) { orders_.push_back({process, bytes}); }
  void Forget(sched::ProcessId process) {
    std::erase_if(orders_, [&](const Ordered& order) { return order.process == process; });
    if (move_ && move_->process == process) move_.reset();
  }

  Nanos NextEvent() const { return move_ ? move_->done : kNever; }
  // Begins the next batch if none is under way.
  void Begin(Nanos now) {
    if (move_ || orders_.empty()) return;
    Ordered order = orders_.front();
    orders_.pop_front();
    const std::uint64_t bytes = std::min(batch_, order.bytes);
    order.bytes -= bytes;
    if (order.bytes > 0) orders_.push_back(order);
    const double seconds = static_cast<double>(bytes) / bytes_per_second_;
    move_ = Move{order.process, bytes, now + static_cast<Nanos>(seconds * kSecond) + 1};
  }
  // The batch that has ended by now.
  std::optional<Move> End(Nanos now) {
    if (!move_ || move_->done > now) return {};
    return std::exchange(move_, {});
  }

 private:
  struct Ordered {
    sched::ProcessId process;
    std::uint64_t bytes;
  };

  const double bytes_per_second_;
  const std::uint64_t batch_;
  std::deque<Ordered> orders_;
  std::optional<Move> move_;
};

}  // namespace tessera::plan
