#include "channel/control/soft_control.h"

#include <cerrno>

#include "channel/rm/driver_abi.h"
#include "soft/shared/steering.h"

namespace tessera::channel {
namespace {

class SoftControl : public Control {
 public:
  explicit SoftControl(std::unique_ptr<soft::SharedState> state) : state_(std::move(state)) {}

  Result<void> Freeze(std::uint32_t gpu, std::span<const Target> targets, Reach reach) override {
    return SetFrozen(gpu, targets, reach == Reach::kAll ? soft::Frozen::kAll : soft::Frozen::kKernels, counts_.freezes);
  }
  Result<void> Thaw(std::uint32_t gpu, std::span<const Target> targets, Reach /*reach*/) override {
    return SetFrozen(gpu, targets, soft::Frozen::kNothing, counts_.thaws);
  }

  Result<void> SetSlice(std::uint32_t gpu, const Target& target, Nanos slice) override {
    const auto device = Device(gpu);
    if (!device) return std::unexpected(device.error());
    if (slice < kMicrosecond) return Fail(ERANGE, "a time slice is at least 1 us");
    ++counts_.slices;
    auto set = soft::SetSlice(*state_, *device, target.pid, slice);
    if (!set) ++counts_.failures;
    return set;
  }

  Result<Nanos> Slice(std::uint32_t gpu, const Target& target) override {
    const auto device = Device(gpu);
    if (!device) return std::unexpected(device.error());
    return soft::SliceOf(*state_, *device, target.pid);
  }

  bool KnowsProcesses() const override { return true; }
  std::uint32_t DeviceInstance(std::uint32_t gpu) const override { return Device(gpu) ? gpu : abi::kNoGpu; }
  CallCounts Counts() const override { return counts_; }

 private:
  Result<int> Device(std::uint32_t gpu) const {
    if (gpu < static_cast<std::uint32_t>(state_->spec().devices)) return static_cast<int>(gpu);
    return Fail(ENODEV, "there is no soft GPU " + std::to_string(gpu));
  }

  Result<void> SetFrozen(std::uint32_t gpu, std::span<const Target> targets, soft::Frozen frozen,
                         std::uint64_t& count) {
    const auto device = Device(gpu);
    if (!device) return std::unexpected(device.error());
    Result<void> all;
    for (const Target& target : targets) {
      ++count;
      // A process that has ended stands still.
      const auto done = soft::SetFrozen(*state_, *device, target.pid, frozen);
      if (done || done.error().code == ESRCH) continue;
      ++counts_.failures;
      all = done;
    }
    return all;
  }

  const std::unique_ptr<soft::SharedState> state_;
  CallCounts counts_;
};

}  // namespace

std::unique_ptr<Control> MakeSoftControl(std::unique_ptr<soft::SharedState> state) {
  return std::make_unique<SoftControl>(std::move(state));
}

Result<std::unique_ptr<Control>> OpenSoftControl(const std::string& spec) {
  auto state = soft::SharedState::Attach(soft::SharedState::DefaultPath(), spec);
  if (!state) return std::unexpected(state.error());
  return MakeSoftControl(std::move(*state));
}

}  // namespace tessera::channel
