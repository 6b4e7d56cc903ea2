#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/gpu/gpu_server.h"
#include "server/handover/slot_handover.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Gives what parked programs have in host memory to the movers of other GPUs. Runs on the loop's thread.
class MemoryGiver {
 public:
  // The other mover has it as well: KeepBoth is for when the vGPU has moved, Commit for when that is recorded. Without
  // them its end undoes it.
  using Given = std::unique_ptr<SlotHandover>;
  using Done = std::function<void(Result<Given>)>;

  // How long a mover may take to be there.
  static constexpr Nanos kPatience = 30 * kSecond;

  explicit MemoryGiver(EventLoop& loop) : timer_(loop, [this] { Step(); }) {}
  MemoryGiver(const MemoryGiver&) = delete;

  // Begins, once both movers are there; the GPUs outlive the object. `but`: as for SlotHandover. `done` is called
  // later. After an error the first GPU's mover has all of it still: those of SlotHandover, and ETIMEDOUT where a mover
  // did not come, ESRCH where the program has ended.
  void Give(const Process& process, GpuServer& from, GpuServer& to, std::set<std::uint64_t> but, Done done);

 private:
  struct Gift {
    pid_t pid = 0;
    GpuServer* from = nullptr;
    GpuServer* to = nullptr;
    std::set<std::uint64_t> but;
    Done done;
    Nanos until = 0;
    std::unique_ptr<SlotHandover> handover;  // null: it waits for a mover
    std::optional<Error> error;              // its end is due
  };
  static Process* Find(const Gift& gift);
  void Begin(Gift& gift, Nanos now);
  void End(const Gift& gift, std::optional<Error> error);
  void Step();

  std::vector<std::unique_ptr<Gift>> gifts_;
  EventLoop::Timer timer_;
};

}  // namespace tessera::server
