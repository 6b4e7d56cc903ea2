#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sched/packing/rehome.h"
#include "server/checkpoint/suspensions.h"
#include "server/draining/move_queue.h"
#include "server/gpu/vgpu_table.h"
#include "wire/protocol.h"

namespace tessera::server {

struct Homes;

// What is done, or would be: vGPUs that move, and those that should and cannot.
struct MovePlan {
  std::vector<std::vector<VGpuMove>> moves;  // each in one go
  struct Stay {
    VgpuId vgpu = 0;
    std::string name, why;
  };
  std::vector<Stay> stays;
  std::uint32_t room_on = 0;  // for a newcomer: the GPU that has room for it then
};

// GPUs that drain: they take no newcomers, and their vGPUs go to others, as far as they can; and moves that make room
// for a newcomer. Where each goes says sched/packing/rehome.h. Runs on the loop's thread.
class Drains {
 public:
  // All outlive the object. `on_change` is called when Marked has changed.
  Drains(VGpuTable& table, const VGpuTable::Gpus& gpus, const Suspensions& suspensions, MoveQueue& queue,
         std::function<void()> on_change);
  Drains(const Drains&) = delete;

  // What Begin would do.
  MovePlan Plan(std::uint32_t gpu) const;
  // The GPU drains from now on. Where it does so already, its vGPUs are tried again. `why`: for the event, in words;
  // empty: an operator said so.
  MovePlan Begin(std::uint32_t gpu, const std::string& why, Nanos now);
  // It takes newcomers again. Moves that have not begun are left out; what has gone does not come back.
  void End(std::uint32_t gpu, Nanos now);

  // The GPUs that drain, those that are not there now included, for the next daemon; and what that one does with them.
  const std::vector<wire::Uuid>& Marked() const { return marked_; }
  void Restore(std::vector<wire::Uuid> marked);

  // What is on a GPU that drains: vGPUs that wait for their move or are on their way, and those that stay, with the
  // reason.
  struct Standing {
    std::vector<std::string> moving;
    std::vector<MovePlan::Stay> staying;
  };
  Standing StandingOf(std::uint32_t gpu) const;

  // The moves that make room for a vGPU of these promises, in no space. Errors as sched::MakeRoom.
  Result<MovePlan> PlanRoom(const sched::Newcomer& newcomer) const;
  void Move(const MovePlan& plan, Nanos now);

 private:
  MovePlan PlanOf(const Homes& homes, const sched::Rehoming& rehoming) const;

  VGpuTable& table_;
  const VGpuTable::Gpus& gpus_;
  const Suspensions& suspensions_;
  MoveQueue& queue_;
  const std::function<void()> on_change_;
  std::vector<wire::Uuid> marked_;
  std::map<VgpuId, std::string> why_stays_;  // found when its GPU was to be emptied
};

}  // namespace tessera::server
