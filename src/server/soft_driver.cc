#include <mutex>

#include "channel/soft_control.h"
#include "server/gpu_driver.h"
#include "soft/soft_gpu.h"

namespace tessera::server {
namespace {

class SoftDriver : public GpuDriver {
 public:
  explicit SoftDriver(std::unique_ptr<soft::SharedState> state) : state_(std::move(state)) {}

  Result<std::vector<GpuInfo>> List() override {
    std::vector<GpuInfo> gpus;
    for (const soft::SoftGpu& gpu : Look()) {
      auto uuid = ParseUuid(gpu.uuid);
      if (!uuid) return std::unexpected(uuid.error());
      gpus.push_back({*uuid, gpu.name, gpu.memory_bytes, gpu.context_bytes});
    }
    return gpus;
  }

  Result<DeviceMemory> Measure(std::uint32_t gpu) override {
    const auto gpus = Look();
    if (gpu >= gpus.size()) return Fail(ENODEV, "there is no soft GPU " + std::to_string(gpu));
    DeviceMemory memory{.used = gpus[gpu].used_bytes};
    for (const soft::ProcessUse& process : gpus[gpu].processes) memory.by_process[process.pid] += process.bytes;
    return memory;
  }

  Result<std::unique_ptr<channel::Control>> OpenControl() override { return channel::OpenSoftControl(); }

  bool IsSoft() const override { return true; }

 private:
  std::vector<soft::SoftGpu> Look() {
    std::lock_guard lock(mutex_);
    return soft::ListSoftGpus(*state_);
  }

  std::mutex mutex_;
  const std::unique_ptr<soft::SharedState> state_;  // kept, so that the soft GPUs last as long as the daemon
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> OpenSoftDriver(const std::string& soft_spec) {
  auto state = soft::SharedState::Attach(soft::SharedState::DefaultPath(), soft_spec);
  if (!state) return std::unexpected(state.error());
  return std::make_unique<SoftDriver>(std::move(*state));
}

}  // namespace tessera::server
