#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "channel/rm/object_event.h"

namespace tessera::guard {

// What the gate asks and tells its owner, on the supervisor's thread. All of them must be set. A pid is that of a
// process (not of a thread), as this process sees it.
struct SupervisorHooks {
  // Whether the process may have `bytes` more of the memory of `device` (RM's instance of a GPU, or
  // MemoryObjects::kUnknownDevice); then they are its. May wait for another thread: the programs behind the gate wait
  // with it.
  std::function<bool(pid_t pid, std::uint32_t device, std::uint64_t bytes)> charge;
  // Of what was charged; may come after the end of the process.
  std::function<void(pid_t pid, std::uint32_t device, std::uint64_t bytes)> give_back;
  // What the process made or freed; only what succeeded, and only in clients that are its own.
  std::function<void(pid_t pid, const channel::ObjectEvent& event)> object;
  std::function<void(std::uint64_t listener)> ended;  // its last process is gone, and all was given back
  // A request that no program may make; for people. Not of memory over the limit. A few a second for a program, and one
  // that says how many more there were.
  std::function<void(pid_t pid, std::string what)> refused;
};

struct SupervisorOptions {
  // Allocations, frees and second handles of memory are made by the supervisor, on a duplicate of the program's file
  // and with a copy of its arguments: what was checked is what is done. Off: the program makes them itself after they
  // were counted; a thread that changes the arguments in between gets memory that is not counted, and an allocation
  // that the driver refuses stays counted.
  bool execute_memory_calls = true;
  // The same for devices, channel groups and channels. Off: a handle that RM chooses is not seen, and a channel that
  // RM refuses is told all the same.
  bool execute_channel_calls = true;
};

}  // namespace tessera::guard
