#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "channel/control/soft_control.h"
#include "server/devices/gpu_driver.h"
#include "soft/shared/soft_gpu.h"

namespace tessera::server {
namespace {

class SoftDriver : public GpuDriver {
 public:
  explicit SoftDriver(std::unique_ptr<soft::SharedState> state) : state_(std::move(state)), faults_(OpenFaults()) {}

  Result<std::vector<GpuInfo>> List() override {
    std::vector<GpuInfo> gpus;
    for (const soft::SoftGpu& gpu : Look()) {
      auto uuid = ParseUuid(gpu.uuid);
      if (!uuid) return std::unexpected(uuid.error());
      gpus.push_back({*uuid, gpu.name, gpu.memory_bytes, gpu.context_bytes});
    }
    for (std::uint32_t reader = 0; reader < gpus.size(); ++reader) {
      for (std::uint32_t read = 0; read < gpus.size(); ++read) {
        if (read != reader) gpus[reader].reaches.push_back(read);
      }
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

  // A soft GPU has faults only where somebody makes them up: lines "GPU xid NUMBER", "GPU ecc" and "GPU lost", written
  // to the FIFO that $TESSERA_SOFT_FAULTS names.
  Result<std::optional<GpuFault>> AwaitFault(Nanos most) override {
    if (!faults_) return Fail(ENOTSUP, "soft GPUs have no faults of their own");
    if (auto fault = TakeFault()) return fault;
    pollfd news{.fd = faults_.Get(), .events = POLLIN, .revents = 0};
    if (poll(&news, 1, static_cast<int>(most / kMillisecond)) <= 0) return std::nullopt;
    std::array<char, 4096> bytes;
    const ssize_t length = read(faults_.Get(), bytes.data(), bytes.size());
    if (length > 0) fault_lines_.append(bytes.data(), static_cast<std::size_t>(length));
    return TakeFault();
  }

  bool IsSoft() const override { return true; }

 private:
  // For reading and writing, so that it has no end.
  static UniqueFd OpenFaults() {
    const char* path = std::getenv("TESSERA_SOFT_FAULTS");
    return UniqueFd(path && *path ? open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1);
  }

  std::optional<GpuFault> TakeFault() {
    for (auto end = fault_lines_.find('\n'); end != std::string::npos; end = fault_lines_.find('\n')) {
      std::istringstream line(fault_lines_.substr(0, end));
      fault_lines_.erase(0, end + 1);
      GpuFault fault;
      std::string kind;
      if (!(line >> fault.gpu >> kind)) continue;
      if (kind == "lost") return fault.kind = GpuFault::Kind::kLost, fault;
      if (kind == "ecc") return fault.kind = GpuFault::Kind::kEcc, fault;
      if (kind == "xid" && line >> fault.xid) return fault;
    }
    return std::nullopt;
  }

  std::vector<soft::SoftGpu> Look() {
    MutexLock lock(mutex_);
    return soft::ListSoftGpus(*state_);
  }

  Mutex mutex_;
  // By GPU and process, at the last Measure.
  std::map<std::pair<std::uint32_t, pid_t>, Nanos> busy_ TESSERA_GUARDED_BY(mutex_);
  const std::unique_ptr<soft::SharedState> state_
      TESSERA_PT_GUARDED_BY(mutex_);  // kept, so that the soft GPUs last as long as the daemon
  const UniqueFd faults_;             // empty: there are none
  std::string fault_lines_;           // read, and not yet told; belongs to AwaitFault
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> OpenSoftDriver(const std::string& soft_spec) {
  auto state = soft::SharedState::Attach(soft::SharedState::DefaultPath(), soft_spec);
  if (!state) return std::unexpected(state.error());
  return std::make_unique<SoftDriver>(std::move(*state));
}

}  // namespace tessera::server
