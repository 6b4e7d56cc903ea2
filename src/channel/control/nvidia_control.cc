#include "channel/control/nvidia_control.h"

#include <algorithm>
#include <string>
#include <utility>

#include "channel/rm/driver_abi.h"
#include "channel/rm/rm_client.h"
#include "channel/rm/rm_gpus.h"
#include "channel/rm/rm_status.h"

namespace tessera::channel {
namespace {

struct Channel {
  std::uint32_t client, channel;
  pid_t pid;
};

std::vector<Channel> ChannelsOf(std::span<const Target> targets, Reach reach) {
  std::vector<Channel> channels;
  for (const Target& target : targets) {
    for (const Group& group : target.groups) {
      if (reach == Reach::kCompute && !IsCompute(group)) continue;
      for (const std::uint32_t channel : group.channels) channels.push_back({group.client, channel, target.pid});
    }
  }
  return channels;
}

void KeepFirst(Result<void>& kept, Result<void> result) {
  if (kept && !result) kept = std::move(result);
}

class NvidiaControl : public Control {
 public:
  NvidiaControl(std::unique_ptr<RmSystem> system, RmClient client, std::vector<RmGpu> gpus)
      : system_(std::move(system)), client_(std::move(client)), gpus_(std::move(gpus)) {}

  Result<void> Freeze(std::uint32_t gpu, std::span<const Target> targets, Reach reach) override {
    return Disable(gpu, targets, reach, true);
  }
  Result<void> Thaw(std::uint32_t gpu, std::span<const Target> targets, Reach reach) override {
    return Disable(gpu, targets, reach, false);
  }
  Result<void> SetSlice(std::uint32_t gpu, const Target& target, Nanos slice) override;
  Result<Nanos> Slice(std::uint32_t gpu, const Target& target) override;
  std::uint32_t DeviceInstance(std::uint32_t gpu) const override {
    return gpu < gpus_.size() ? gpus_[gpu].device_instance : abi::kNoGpu;
  }
  CallCounts Counts() const override { return counts_; }

 private:
  Result<void> CheckGpu(std::uint32_t gpu) const;
  Result<void> Disable(std::uint32_t gpu, std::span<const Target> targets, Reach reach, bool disable);
  Result<void> DisableBatch(const RmGpu& gpu, std::span<const Channel> channels, bool disable);
  Result<void> DisableParts(const RmGpu& gpu, std::span<const Channel> channels, bool disable, bool by_process);
  Result<std::uint32_t> CallDisable(const RmGpu& gpu, std::span<const Channel> channels, bool disable);
  // False if the group is no more.
  Result<bool> CallGroup(const Target& target, const Group& group, std::uint32_t command, std::uint64_t& microseconds);

  const std::unique_ptr<RmSystem> system_;
  RmClient client_;
  const std::vector<RmGpu> gpus_;
  CallCounts counts_;
};

Result<void> NvidiaControl::CheckGpu(std::uint32_t gpu) const {
  if (gpu < gpus_.size()) return {};
  return Fail(ENODEV, "there is no GPU " + std::to_string(gpu));
}

// Everything is tried, whatever fails: who is thawed must not stay frozen because a neighbour's channels are broken.
Result<void> NvidiaControl::Disable(std::uint32_t gpu, std::span<const Target> targets, Reach reach, bool disable) {
  if (auto known = CheckGpu(gpu); !known) return known;
  const std::vector<Channel> all = ChannelsOf(targets, reach);
  Result<void> result;
  for (std::span<const Channel> left = all; !left.empty();) {
    const auto batch = left.first(std::min<std::size_t>(left.size(), abi::kMostChannels));
    left = left.subspan(batch.size());
    KeepFirst(result, DisableBatch(gpus_[gpu], batch, disable));
  }
  return result;
}

// RM refuses the whole call when one handle is stale, as those of a process that has just ended are, and may have done
// a part of it: hence again in smaller parts, until what is refused is one stale channel. Other refusals are narrowed
// down to a process. RM counts: what it disabled before it refused is enabled first, or it would stay off after a thaw.
Result<void> NvidiaControl::DisableBatch(const RmGpu& gpu, std::span<const Channel> channels, bool disable) {
  const auto status = CallDisable(gpu, channels, disable);
  if (!status) return std::unexpected(status.error());
  if (*status == abi::kOk) return {};
  const bool vanished = abi::IsVanished(*status);
  if (vanished && channels.size() == 1) return {};
  const bool one_process =
      std::ranges::all_of(channels, [&](const Channel& channel) { return channel.pid == channels.front().pid; });
  if (disable && channels.size() > 1) (void)CallDisable(gpu, channels, false);
  if (vanished || !one_process) return DisableParts(gpu, channels, disable, !one_process);
  ++counts_.failures;
  const std::string verb = disable ? "freeze" : "thaw";
  return CheckStatus(*status, verb + " channels of process " + std::to_string(channels.front().pid));
}

Result<void> NvidiaControl::DisableParts(const RmGpu& gpu, std::span<const Channel> channels, bool disable,
                                         bool by_process) {
  Result<void> result;
  while (!channels.empty()) {
    std::size_t count = 1;
    while (by_process && count < channels.size() && channels[count].pid == channels[0].pid) ++count;
    KeepFirst(result, DisableBatch(gpu, channels.first(count), disable));
    channels = channels.subspan(count);
  }
  return result;
}

Result<std::uint32_t> NvidiaControl::CallDisable(const RmGpu& gpu, std::span<const Channel> channels, bool disable) {
  abi::DisableChannels request = {.disable = disable, .channels = static_cast<std::uint32_t>(channels.size())};
  for (std::size_t i = 0; i < channels.size(); ++i) {
    request.client[i] = channels[i].client;
    request.channel[i] = channels[i].channel;
  }
  ++(disable ? counts_.freezes : counts_.thaws);
  auto status = client_.Control(gpu.subdevice, abi::kDisableChannels, request);
  if (!status) ++counts_.failures;
  return status;
}

Result<bool> NvidiaControl::CallGroup(const Target& target, const Group& group, std::uint32_t command,
                                      std::uint64_t& microseconds) {
  const auto file = system_->Borrow(target.process_fd, group.fd);
  // The process may have closed the file a moment ago; whether it has ended, the pidfd knows.
  if (!file && file.error().code == EBADF) return false;
  if (!file) return std::unexpected(file.error());
  const auto status = CallControl(**file, group.client, group.handle, command, &microseconds, sizeof microseconds);
  if (!status) return std::unexpected(status.error());
  if (abi::IsVanished(*status)) return false;
  if (const auto done = CheckStatus(*status, "time slice of process " + std::to_string(target.pid)); !done) {
    return std::unexpected(done.error());
  }
  return true;
}

Result<void> NvidiaControl::SetSlice(std::uint32_t gpu, const Target& target, Nanos slice) {
  if (auto known = CheckGpu(gpu); !known) return known;
  if (slice < kMicrosecond) return Fail(ERANGE, "a time slice is at least 1 us");
  if (target.process_fd < 0) return Fail(EBADF, "no pidfd of process " + std::to_string(target.pid));
  Result<void> result;
  for (const Group& group : target.groups) {
    if (!IsCompute(group) || group.handle == 0 || group.fd < 0) continue;
    auto microseconds = static_cast<std::uint64_t>(slice / kMicrosecond);
    ++counts_.slices;
    const auto done = CallGroup(target, group, abi::kGroupSetSlice, microseconds);
    if (done) continue;
    ++counts_.failures;
    KeepFirst(result, std::unexpected(done.error()));
    if (done.error().code == ESRCH) break;
  }
  return result;
}

Result<Nanos> NvidiaControl::Slice(std::uint32_t gpu, const Target& target) {
  if (const auto known = CheckGpu(gpu); !known) return std::unexpected(known.error());
  if (target.process_fd < 0) return Fail(EBADF, "no pidfd of process " + std::to_string(target.pid));
  for (const Group& group : target.groups) {
    if (!IsCompute(group) || group.handle == 0 || group.fd < 0) continue;
    std::uint64_t microseconds = 0;
    const auto done = CallGroup(target, group, abi::kGroupGetSlice, microseconds);
    if (!done) return std::unexpected(done.error());
    if (*done) return static_cast<Nanos>(microseconds) * kMicrosecond;
  }
  return Fail(ENOENT, "process " + std::to_string(target.pid) + " has no compute channels");
}

}  // namespace

Result<std::unique_ptr<Control>> OpenNvidiaControl(const std::vector<GpuUuid>& uuids,
                                                   std::unique_ptr<RmSystem> system) {
  auto file = system->OpenControl();
  if (!file) return std::unexpected(file.error());
  if (const auto attached = system->AttachGpus(); !attached) return std::unexpected(attached.error());
  auto client = RmClient::Open(std::move(*file));
  if (!client) return std::unexpected(client.error());
  auto gpus = FindGpus(*client, uuids);
  if (!gpus) return std::unexpected(gpus.error());
  return std::make_unique<NvidiaControl>(std::move(system), std::move(*client), std::move(*gpus));
}

Result<std::unique_ptr<Control>> OpenNvidiaControl(const std::vector<GpuUuid>& uuids) {
  return OpenNvidiaControl(uuids, MakeRmSystem());
}

}  // namespace tessera::channel
