#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace tessera::guard {

// An action of a GPU program of the node, as the watch saw it. Only successful ones are reported.
struct WatchEvent {
  enum class Kind {
    kAlloc,     // of a client, a device, a channel group, a channel or GPU memory; others are not reported
    kFree,      // of any object; objects below it are gone as well
    kDup,       // of any object
    kExit,      // the program is about to end: its process exits, or executes another program
    kExisting,  // the process used the GPU before the watch began: its objects are not known
    kLost,      // `lost` events before this one were lost
  };
  Kind kind = Kind::kAlloc;
  std::uint64_t sequence = 0;  // numbers the watch's events, from 1

  // The process; not set in kLost.
  pid_t pid = 0;       // in the daemon's PID namespace; 0: it has none there, or is in a namespace inside the daemon's
  pid_t host_pid = 0;  // in the initial PID namespace; 0 in kExisting if the daemon is not in that one
  std::string name;    // of the thread, at most 15 bytes; of the process in kExisting

  // The action's details: for kAlloc, kFree, kDup.
  std::int32_t fd = -1;                                // of /dev/nvidiactl in the process
  std::uint32_t client = 0, parent = 0, object = 0;    // handles; of a client, object == client
  std::uint32_t cls = 0;                               // kAlloc: channel::abi::Class
  std::uint32_t detail = 0;                            // kAlloc: instance of a kDevice, engine of a kChannelGroup
  std::uint64_t bytes = 0;                             // kAlloc: size of kMemoryLocal
  std::uint32_t source_client = 0, source_object = 0;  // kDup: what `object` is another handle of

  std::uint64_t lost = 0;  // kLost
};

}  // namespace tessera::guard
