#include <map>
#include <utility>

#include "base/mutex.h"
#include "channel/control/soft_control.h"
#include "server/devices/gpu_driver.h"
#include "soft/shared/soft_gpu.h"

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

  Result<DeviceUse> Measure(std::uint32_t gpu) override {
    const auto gpus = Look();
    if (gpu >= gpus.size()) return Fail(ENODEV, "there is no soft GPU " + std::to_string(gpu));
    DeviceUse use{.used = gpus[gpu].used_bytes, .worked = std::unordered_set<pid_t>()};
    std::map<pid_t, Nanos> busy;
    for (const soft::ProcessUse& process : gpus[gpu].processes) {
      use.by_process[process.pid] += process.bytes;
      busy[process.pid] += process.busy;
    }
    MutexLock lock(mutex_);
    for (const auto& [pid, now] : busy) {
      if (now != std::exchange(busy_[{gpu, pid}], now)) use.worked->insert(pid);
    }
    std::erase_if(busy_,
                  [&](const auto& entry) { return entry.first.first == gpu && !busy.contains(entry.first.second); });
    return use;
  }

  Result<std::unique_ptr<channel::Control>> OpenControl() override { return channel::OpenSoftControl(); }

  bool IsSoft() const override { return true; }

 private:
  std::vector<soft::SoftGpu> Look() {
    MutexLock lock(mutex_);
    return soft::ListSoftGpus(*state_);
  }

  Mutex mutex_;
  // By GPU and process, at the last Measure.
  std::map<std::pair<std::uint32_t, pid_t>, Nanos> busy_ TESSERA_GUARDED_BY(mutex_);
  const std::unique_ptr<soft::SharedState> state_
      TESSERA_PT_GUARDED_BY(mutex_);  // kept, so that the soft GPUs last as long as the daemon
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> OpenSoftDriver(const std::string& soft_spec) {
  auto state = soft::SharedState::Attach(soft::SharedState::DefaultPath(), soft_spec);
  if (!state) return std::unexpected(state.error());
  return std::make_unique<SoftDriver>(std::move(*state));
}

}  // namespace tessera::server
