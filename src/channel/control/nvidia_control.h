#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "channel/control/control.h"
#include "channel/rm/rm_file.h"
#include "channel/rm/rm_gpus.h"

namespace tessera::channel {

// Control of NVIDIA's GPUs through a client of our own on /dev/nvidiactl; needs no right that a CUDA program has not,
// except for slices of other users' processes. The GPUs are numbered in the order of `uuids`. ENODEV if the driver does
// not know one of them.
Result<std::unique_ptr<Control>> OpenNvidiaControl(const std::vector<GpuUuid>& uuids);
Result<std::unique_ptr<Control>> OpenNvidiaControl(const std::vector<GpuUuid>& uuids, std::unique_ptr<RmSystem> system);

}  // namespace tessera::channel
