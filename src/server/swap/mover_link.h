#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "sched/residency/residency_plan.h"
#include "server/model/process.h"
#include "server/swap/mover.h"

namespace tessera::server {

// The link to the mover of one GPU: starts a mover, starts another one when it ends, makes the lines over which it
// reaches programs, gives it orders, and knows what it last said of its pool. Passes on what it says of programs.
// Runs on the loop's thread.
class MoverLink {
 public:
  struct Host {
    std::function<Result<std::unique_ptr<Mover>>(std::function<void(const wire::MoverMessage*)>)> start;
    // As ResidencyHost's.
    std::function<UniqueFd(const Process&)> file_of = [](const Process&) { return UniqueFd(); };
    // It can move memory from now on: it has to be introduced to the programs. Or no longer: it has ended.
    std::function<void()> ready, gone;
    // kMoved, kEvicted, kLoaded, kSettled, kParked, kSaved, kUnsaved, kSaveLeft or kNoHostMemory.
    std::function<void(const wire::MoverMessage&)> report;
    // Pool() says something else of the machine now, or a slot is gone.
    std::function<void()> machine;
  };
  struct File {
    std::uint64_t used = 0;
    int error = 0;  // errno value of why nothing more is written
  };

  // `pool`: what the pool may have at most (0: there is no mover), what is to be prepared, and what an earlier daemon's
  // mover had prepared.
  MoverLink(std::uint32_t gpu, const sched::PoolResidence& pool, Host host);
  MoverLink(const MoverLink&) = delete;

  // ---- the process ----
  // Starts one if there is none and the last start was not a moment ago.
  void Ensure(Nanos now);
  // Destroys one whose process has ended. Not to be called while it speaks.
  void Reap();
  // When to call Ensure or Reap, where that may change something; kNever. `needed`: one is wanted.
  Nanos NextLook(bool needed, Nanos now) const;
  bool Exists() const { return mover_ != nullptr; }
  bool Ready() const { return ready_; }
  // Too many movers in a row failed to start.
  bool Hopeless() const;
  // Why there is no mover. Empty if none is `needed` and the last one did start.
  std::string WhyNone(bool needed) const { return needed || failed_starts_ > 0 ? why_none_ : ""; }
  pid_t Pid() const { return mover_ ? mover_->Pid() : 0; }
  std::uint32_t Gpu() const { return gpu_; }

  // ---- lines ----
  // The program's end of a new line; the old one, if there is any, is dead. Empty if none can be made now.
  UniqueFd MakeLine(Process& process, Nanos now);
  // Tells a mover that is ready of a process that has a line and that it does not know.
  void Introduce(Process& process);
  // The process leaves.
  void Dismiss(const Process& process);

  // ---- orders ----
  // kEvict, kLoad, kSettle, kPark or kRelocate. False if there is no mover to hear it.
  bool Order(const Process& process, wire::MoverType order, std::uint64_t bytes = 0, std::uint64_t holes = 0);
  // Something that is about no line of this link. False if there is no mover to hear it.
  bool Tell(const wire::MoverMessage& message, int fd = -1);
  // `ear` is called with each kLent, kSlotTaken, kSlotLeft (whose slot is kept by then), kShownAll, kReached and
  // kClaimed, and with nullptr when the mover has ended, until Unlisten; it may call that. The result is for Unlisten.
  using Ear = std::function<void(const wire::MoverMessage*)>;
  std::uint64_t Listen(Ear ear);
  void Unlisten(std::uint64_t ear) { ears_.erase(ear); }
  // Whether the pool is to be left alone as far as possible (wire::MoverType::kRest); the next mover is told, too.
  void Rest(bool rests);
  // kGrowPool or kPreparePool.
  void OrderPool(const sched::ResidencyAction& action);

  // `full_until` is the caller's business.
  const sched::PoolResidence& Pool() const { return pool_; }
  const File& FileUse() const { return file_; }

 private:
  void OnMessage(const wire::MoverMessage* message, Nanos now);
  void OnGone();
  void OnReady();
  void SendPool();
  void TellEars(const wire::MoverMessage* message);

  const std::uint32_t gpu_;
  const Host host_;
  std::unique_ptr<Mover> mover_;
  bool ready_ = false;
  bool gone_ = false;  // it said so; its process may not have ended
  Nanos next_start_ = 0;
  int failed_starts_ = 0;  // in a row
  std::string why_none_;
  std::uint64_t next_number_ = 1;
  sched::PoolResidence pool_;
  bool rests_ = false;
  File file_;
  std::map<std::uint64_t, Ear> ears_;
  std::uint64_t next_ear_ = 1;
};

}  // namespace tessera::server
