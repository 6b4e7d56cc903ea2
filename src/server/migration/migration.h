#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/checkpoint/suspensions.h"
#include "server/gpu/gpu_server.h"
#include "server/gpu/vgpu_table.h"
#include "server/migration/direct_ways.h"
#include "server/migration/memory_giver.h"

namespace tessera::server {

// A vGPU, and the GPU that it is to be on.
struct VGpuMove {
  VgpuId vgpu = 0;
  std::uint32_t to = 0;
};

// Moves vGPUs, with all of their programs, to other GPUs: the programs are suspended, what they have in host memory
// goes to the movers of the new GPUs, then the vGPUs, and the programs come back there. A program on several GPUs needs
// all of its vGPUs to move together, at most one to each GPU; those that stay move to where they are.
//
// What fails before the vGPUs have moved is undone. A program that cannot be restored on the new GPUs goes back to the
// old ones with its vGPU, as long as none has come back on the new ones; else it stays suspended. On the loop's thread,
// which it never blocks: Step is to be called now and then.
class Migration {
 public:
  // Gives what a parked process has in host memory to the mover of another GPU, as MemoryGiver::Give.
  using GiveMemory = std::function<void(const Process& process, GpuServer& from, GpuServer& to,
                                        std::set<std::uint64_t> but, MemoryGiver::Done done)>;

  // All that has changed until it is called goes to the state files. What it returns says whether it is there.
  using SaveState = std::function<std::function<bool()>()>;
  // What is outside it: both as above.
  struct Means {
    GiveMemory give;
    SaveState save;
    std::shared_ptr<DirectWays::Unreachable> unreachable = std::make_shared<DirectWays::Unreachable>();
  };

  // All outlive the object.
  Migration(std::vector<VGpuMove> moves, VGpuTable& table, const VGpuTable::Gpus& gpus, Suspensions& suspensions,
            const Means& means);
  Migration(const Migration&) = delete;
  ~Migration();

  // Whether all this can be, as far as can be told before: ENOENT, EBUSY, ENODEV, ENOTSUP, ENOSPC with the reason.
  Result<void> Check() const;
  Result<void> Begin(Nanos now);
  void Step(Nanos now);
  // Somebody wants that program back, which is one of those that this moves: it comes as soon as its vGPU is there,
  // also if it was suspended before this began.
  void BringBack(pid_t pid, Nanos now);

  bool Over() const { return phase_ == Phase::kOver; }
  const std::optional<Error>& Failure() const { return failure_; }
  bool Moves(VgpuId vgpu) const;
  bool Carries(pid_t pid) const { return !Over() && pids_.contains(pid); }
  // The GPU to which it is on its way; it is one of those that this moves.
  std::uint32_t TargetOf(VgpuId vgpu) const { return std::ranges::find(parts_, vgpu, &Part::vgpu)->to; }

 private:
  enum class Phase { kPrepares, kSuspends, kRecords, kReturns, kOver };
  struct Part {
    VgpuId vgpu = 0;
    std::uint32_t from = 0, to = 0;
  };
  std::vector<Process*> Processes() const;
  Result<void> CheckWhole(const VGpu& vgpu) const;
  Result<void> CheckSize(const VGpu& vgpu, std::uint32_t to) const;
  bool MoversReady() const;
  Result<void> Prepare(Nanos now);
  Result<void> SuspendAll(Nanos now);
  Result<void> Suspend(pid_t pid, Nanos now);
  void AwaitSuspended(Nanos now);
  Result<void> GiveNext();
  void Given(Result<MemoryGiver::Given> given);
  void Move(Nanos now);
  Result<void> MoveVGpus(Nanos now);
  void AwaitRecorded(Nanos now);
  void ReturnAll(Nanos now);
  void AwaitReturned(Nanos now);
  void GoBack(const Error& why, Nanos now);
  void GiveUp(Error why, Nanos now);
  void End(Nanos now);

  std::vector<Part> parts_;
  VGpuTable& table_;
  const VGpuTable::Gpus& gpus_;
  Suspensions& suspensions_;
  const Means& means_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Phase phase_ = Phase::kPrepares;
  std::set<pid_t> pids_;
  std::set<pid_t> was_suspended_;                  // before this began: stay so
  std::set<std::pair<pid_t, VgpuId>> left_;        // processes whose memory has left the GPU,
  std::vector<std::pair<pid_t, VgpuId>> to_give_;  // and is to go to other movers
  std::vector<MemoryGiver::Given> given_;          // and what of it is there
  DirectWays ways_;
  std::function<bool()> recorded_;  // kRecords: the state files have the vGPUs where they are
  bool gives_ = false;              // one of them is under way
  bool went_back_ = false;          // the parts are turned round
  Nanos began_at_ = 0;
  std::optional<Error> failure_;
};

}  // namespace tessera::server
