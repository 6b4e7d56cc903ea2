#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/channels/channel_server.h"
#include "server/gpu/gpu_server.h"
#include "server/loop/event_loop.h"
#include "server/spaces/space_table.h"
#include "server/state/state_file.h"

namespace tessera::server {

// Whether the space of the vGPU is off the GPU, whenever it is called. The channels outlive what is returned.
std::function<bool()> SpaceStands(const VGpu& vgpu, ChannelServer& channels);

// The spaces of a daemon, with their directories in `run_dir`. `embedded`: they end at once with their last vGPU.
std::unique_ptr<SpaceTable> MakeSpaces(EventLoop& loop, const std::string& run_dir, bool soft, bool embedded,
                                       SpaceTable::OnChange on_change);
// The space may have another MPS server now: its channels are steered from now on, if it is a process of the space's
// user.
void FollowServer(const Space& space, ChannelServer& channels, const std::vector<std::unique_ptr<GpuServer>>& gpus,
                  Nanos now);
// Spaces that were made to last: makes those of an earlier daemon again, and tells what the next one must know.
void RestoreSpaces(const std::vector<SavedSpace>& saved, SpaceTable& spaces,
                   const std::vector<std::unique_ptr<GpuServer>>& gpus);
std::vector<SavedSpace> LastingSpaces(const SpaceTable& spaces, const std::vector<std::unique_ptr<GpuServer>>& gpus);

}  // namespace tessera::server
