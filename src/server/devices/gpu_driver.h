#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "channel/control/control.h"
#include "server/devices/gpu_fault.h"
#include "wire/protocol.h"

namespace tessera::server {

struct GpuInfo {
  wire::Uuid uuid;
  std::string name;
  std::uint64_t memory_total = 0;                  // bytes
  std::uint64_t context_bytes = 0;                 // first estimate of what a context costs
  std::string driver = {};                         // its version; empty: not known, or a soft GPU
  std::optional<std::uint32_t> nvlink_group = {};  // as NvlinkGroups says
  std::vector<std::uint32_t> reaches = {};         // indices of GPUs whose memory it can read, as the driver says
};

// The device's own figures of its processes. Bytes; pids as this process sees them.
struct DeviceUse {
  std::uint64_t used = 0;  // by everybody
  std::unordered_map<pid_t, std::uint64_t> by_process;
  // Processes that were seen to execute something since the last Measure, in samples; absent: the device does not tell.
  std::optional<std::unordered_set<pid_t>> worked;
};

// A GPU driver as the daemon needs it: the real one through NVML, the soft GPU, or a test's.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

  // The GPUs of the machine. Their order is the numbering that people use and does not change while the driver lives.
  virtual Result<std::vector<GpuInfo>> List() = 0;

  // Any thread, several at once; may take milliseconds.
  virtual Result<DeviceUse> Measure(std::uint32_t gpu) = 0;

  // A way to steer the channels of the GPUs of List. ENOTSUP where there is none. Also in a forked child that has no
  // other thread.
  virtual Result<std::unique_ptr<channel::Control>> OpenControl() {
    return Fail(ENOTSUP, "this kind of GPU has no channels to steer");
  }

  // Waits for the next fault of a GPU of List, for at most so long; nullopt: there was none. ENOTSUP: this driver never
  // tells of faults. Any thread, but one at a time.
  virtual Result<std::optional<GpuFault>> AwaitFault(Nanos /*most*/) {
    return Fail(ENOTSUP, "this kind of GPU tells of no faults");
  }

  virtual bool IsSoft() const = 0;
};

// The driver that the machine has, or the soft GPU that `soft_spec` describes ("2x16GiB", empty: its default).
Result<std::unique_ptr<GpuDriver>> OpenNvmlDriver();
Result<std::unique_ptr<GpuDriver>> OpenSoftDriver(const std::string& soft_spec);

// "GPU-8e1ab4f5-…" as NVML and nvidia-smi print it, and back. EINVAL for anything else.
std::string FormatUuid(const wire::Uuid& uuid);
Result<wire::Uuid> ParseUuid(std::string_view text);

}  // namespace tessera::server
