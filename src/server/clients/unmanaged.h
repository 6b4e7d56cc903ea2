#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/clients/guest_server.h"

namespace tessera::server {

// A process on a GPU that is in no vGPU, and no mover of the daemon's.
struct Unmanaged {
  pid_t pid = 0;
  std::string name;
  std::uint32_t gpu = 0;
  std::uint64_t bytes = 0;
  bool complete = true;
};

// All of them, as the watch and the devices saw them. On the event loop's thread.
std::vector<Unmanaged> ListUnmanaged(GuestServer& guests, const VGpuTable::Gpus& gpus, const ChannelTable& channels);

}  // namespace tessera::server
