#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "channel/rm/rm_client.h"

namespace tessera::channel {

using GpuUuid = std::array<std::uint8_t, 16>;

// A GPU as RM and a client of ours know it.
struct RmGpu {
  std::uint32_t device_instance = 0;
  std::uint32_t subdevice = 0;  // handle in the client
};

// Makes a device and a subdevice in the client for each of these GPUs, in their order. ENODEV if RM does not lead to
// one of them: it is not attached, or not for this user.
Result<std::vector<RmGpu>> FindGpus(RmClient& client, const std::vector<GpuUuid>& uuids);

}  // namespace tessera::channel
