#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "channel/control/control.h"

namespace tessera::server {

// Channels that exist only in a test: remembers which are off the GPU.
class FakeControl : public channel::Control {
 public:
  using Channel = std::pair<std::uint32_t, std::uint32_t>;  // client, handle

  Result<void> Freeze(std::uint32_t, std::span<const channel::Target> targets, channel::Reach reach) override {
    ++counts_.freezes;
    if (fails || std::ranges::any_of(targets, [this](const auto& target) { return target.pid == fails_for; }))
      return Fail(EIO, "the driver does not do that now");
    Each(targets, reach, [this](const Channel& channel) {
      twice |= frozen.contains(channel);
      frozen.insert(channel);
    });
    return {};
  }
  Result<void> Thaw(std::uint32_t, std::span<const channel::Target> targets, channel::Reach reach) override {
    ++counts_.thaws;
    if (thaw_fails) return Fail(EIO, "the driver does not do that now");
    for (const channel::Target& target : targets) thawed.insert(target.pid);
    Each(targets, reach, [this](const Channel& channel) {
      if (const auto found = frozen.find(channel); found != frozen.end()) frozen.erase(found);
    });
    return {};
  }
  Result<void> SetSlice(std::uint32_t, const channel::Target& target, Nanos slice) override {
    ++counts_.slices;
    slices[target.pid] = slice;
    return {};
  }
  Result<Nanos> Slice(std::uint32_t, const channel::Target& target) override {
    for (const channel::Group& group : target.groups) {
      if (foreign.contains(group.client)) return Fail(EACCES, "the client is another file's");
    }
    return 2 * kMillisecond;
  }
  std::uint32_t DeviceInstance(std::uint32_t gpu) const override { return gpu; }
  channel::CallCounts Counts() const override { return counts_; }

  std::multiset<Channel> frozen;  // as often as it was taken off: RM counts
  std::set<pid_t> thawed;         // at any time
  bool fails = false, thaw_fails = false;
  pid_t fails_for = 0;
  bool twice = false;  // one was taken off that was off
  std::map<pid_t, Nanos> slices;
  std::set<std::uint32_t> foreign;  // clients that are not those of whoever claims them

 private:
  template <typename Act>
  static void Each(std::span<const channel::Target> targets, channel::Reach reach, Act act) {
    for (const channel::Target& target : targets) {
      for (const channel::Group& group : target.groups) {
        if (reach == channel::Reach::kCompute && !channel::IsCompute(group)) continue;
        for (const std::uint32_t handle : group.channels) act({group.client, handle});
      }
    }
  }
  channel::CallCounts counts_;
};

}  // namespace tessera::server
