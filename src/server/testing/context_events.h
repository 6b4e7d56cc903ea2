#pragma once

#include <cstdint>
#include <vector>

#include "channel/rm/driver_abi.h"
#include "channel/rm/object_event.h"

namespace tessera::server {

// What a context makes, in its order: the client, a device of it (2), a group that computes, and a channel of that.
inline std::vector<channel::ObjectEvent> ContextEvents(std::uint32_t client, std::uint32_t group = 3,
                                                       std::uint32_t channel = 10,
                                                       std::uint32_t group_cls = channel::abi::kChannelGroup) {
  using Kind = channel::ObjectEvent::Kind;
  namespace abi = channel::abi;
  return {{Kind::kAlloc, 5, client, 0, client, abi::kRootClient, 0},
          {Kind::kAlloc, 5, client, client, 2, abi::kDevice, 0},
          {Kind::kAlloc, 5, client, 2, group, group_cls, abi::kEngineGraphics},
          {Kind::kAlloc, 5, client, group, channel, abi::kAnyChannel, 0}};
}

}  // namespace tessera::server
