#include "plan/time/sliced_hardware.h"

#include <algorithm>

namespace tessera::plan {

void SlicedHardware::Dispatch(const std::map<sched::VgpuId, ChannelGroup>& groups, Nanos now) {
  now_ = now;
  if (runs_ && alone_ && now > slice_end_) {
    const Nanos slice = std::max<Nanos>(1, groups.at(*runs_).slice);
    slice_end_ += (now - slice_end_ + slice - 1) / slice * slice;
  }
  const bool stays = runs_ && now < slice_end_ && groups.at(*runs_).CanRun();
  if (!stays) {
    const auto can_run = [](const auto& entry) { return entry.second.CanRun(); };
    auto next = std::find_if(groups.upper_bound(last_), groups.end(), can_run);
    if (next == groups.end()) next = std::find_if(groups.begin(), groups.end(), can_run);
    runs_.reset();
    if (next != groups.end()) {
      if (next->first != last_) {
        switched_at_ = now + costs_.switch_cost;
        ++switches_;
      }
      runs_ = last_ = next->first;
      slice_end_ = (costs_.switch_in_slice ? now : std::max(now, switched_at_)) + next->second.slice;
    }
  }
  int can_run = 0;
  for (const auto& [id, group] : groups) {
    can_run += group.CanRun() ? 1 : 0;
    group.part->among = runs_ == id && now >= switched_at_ ? 1 : 0;
  }
  alone_ = can_run == 1;
}

Nanos SlicedHardware::NextEvent() const {
  if (!runs_) return kNever;
  if (now_ < switched_at_) return switched_at_;
  return alone_ ? kNever : std::max(now_ + 1, slice_end_);
}

}  // namespace tessera::plan
