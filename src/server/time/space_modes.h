#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sched/goals/goals.h"
#include "sched/spaces/space_trial.h"
#include "server/config/config.h"
#include "server/model/vgpu.h"
#include "server/time/time_server.h"

namespace tessera::server {

// Keeper of the modes of one GPU's spaces: tries by sched::SpaceTrial whether the vGPUs of a space should run at once
// or in turns, says by which shares the time server carries that out, and tells of the choice. Runs on the loop's
// thread.
class SpaceModes {
 public:
  using Id = sched::VgpuId;

  // The mode of one space, for people.
  struct Report {
    sched::SpaceChoice choice;
    std::string why;  // one clause; empty: no trial has answered yet
  };

  // Both outlive the object; `config` is read again at each look.
  SpaceModes(const std::vector<VGpu*>& vgpus, const Config& config) : vgpus_(vgpus), config_(config) {}
  SpaceModes(const SpaceModes&) = delete;

  // This server divides the time from now on. It outlives the next call of this.
  void Serve(TimeServer& server, Nanos now);

  // vGPUs, their shares or goals are others, or are about to be: it looks at them with the next Advance.
  void Changed(Nanos now) { look_at_ = now; }
  // The vGPU's goal is missed that was kept.
  void GoalMissed(const VGpu& vgpu, Nanos now);

  // To be called at the deadline; kNever: there is none. `goals`: of the GPU, null if there are none. Returns the vGPUs
  // whose shares are to be given to the time server again.
  std::vector<Id> Advance(sched::Goals* goals, Nanos now);
  Nanos NextDeadline() const;

  // There is a space in which a vGPU has a goal, as of the last look.
  bool Any() const { return !trials_.empty(); }
  // The shares, as a vGPU has them in the present mode of its space.
  sched::Shares Under(sched::Shares shares) const;
  Report ReportOf(std::uint32_t space) const;

 private:
  using Members = std::map<std::uint32_t, std::vector<sched::SpaceMember>>;

  Members WithGoals() const;
  void Look(Nanos now);
  sched::SpaceFigures FiguresOf(std::uint32_t space, sched::Goals* goals, Nanos now) const;
  std::vector<const VGpu*> VGpusOf(std::uint32_t space) const;
  std::string GoalsOf(std::uint32_t space, const std::vector<Id>& ids) const;
  std::string WhyOf(std::uint32_t space, const sched::SpaceChoice& choice) const;
  void Tell(std::uint32_t space, sched::SpaceMode mode, const std::string& why) const;

  const std::vector<VGpu*>& vgpus_;
  const Config& config_;
  TimeServer* server_ = nullptr;
  std::map<std::uint32_t, sched::SpaceTrial> trials_;  // by the space's number
  Nanos look_at_ = kNever;
};

// In sentences: "at once".
const char* TextOf(sched::SpaceMode mode);

}  // namespace tessera::server
