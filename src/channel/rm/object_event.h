#pragma once

#include <cstdint>

namespace tessera::channel {

// An act of a process on objects of the resource manager that lead to channels, as the shim, the kernel gate or the
// watch saw it: only what succeeded, and of allocations only clients, devices, channel groups and channels
// (abi::IsRoot, kDevice, kChannelGroup, IsChannel) and duplicates (kDuplicate: a client of MPS makes its channels in
// one of its server's group). A free of anything may be told.
struct ObjectEvent {
  enum class Kind : std::uint32_t { kAlloc = 1, kFree = 2 };
  Kind kind = Kind::kAlloc;
  std::int32_t fd = -1;                              // of /dev/nvidiactl in the process; -1: unknown
  std::uint32_t client = 0, parent = 0, object = 0;  // handles; of a client, object == client
  std::uint32_t cls = 0;                             // kAlloc: abi::Class
  std::uint32_t detail = 0;                          // kAlloc: the instance of a kDevice, the engine of a kChannelGroup
};

}  // namespace tessera::channel
