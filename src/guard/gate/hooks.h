#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "channel/rm/object_event.h"

namespace tessera::guard {

// Callbacks of the gate to its owner, on the supervisor's thread. All functions must be set. A pid is that of a process
// (not of a thread), as this process sees it.
struct SupervisorHooks {
  // Charges the process for `bytes` more of the memory of `device` (RM's instance of a GPU, or
  // MemoryObjects::kUnknownDevice). False: it may not have them. Nothing: nobody decides any more, because the daemon
  // ends; the call stays for the next one. May wait for another thread; the programs behind the gate wait with it.
  std::function<std::optional<bool>(pid_t pid, std::uint32_t device, std::uint64_t bytes)> charge;
  // Gives back what was charged; may come after the end of the process.
  std::function<void(pid_t pid, std::uint32_t device, std::uint64_t bytes)> give_back;
  // An object that the process made or freed: only successful calls, and only in its own clients.
  std::function<void(pid_t pid, const channel::ObjectEvent& event)> object;
  std::function<void(std::uint64_t listener)> ended;  // its last process is gone, and all was given back
  // A refused request, as text for people; not for memory over the limit. A few a second for a program, and one that
  // tells how many more there were.
  std::function<void(pid_t pid, std::string what)> refused;
  // A request of a size that this code does not know passed uncounted; once for each number and size.
  std::function<void(pid_t pid, std::string what)> unknown;

  // How many more processes may be behind this gate and others that share the number; each takes one until it ends.
  // Null: Processes::kMostPerTree alone bounds them.
  std::shared_ptr<std::atomic<std::int64_t>> processes = {};
};

struct SupervisorOptions {
  // The supervisor makes allocations, frees and second handles of memory itself, on a duplicate of the program's file
  // and with a copy of its arguments, so that the checked call is the one that is made. Off: the program makes them
  // after they were counted; a thread that changes the arguments in between gets memory that is not counted, and an
  // allocation that the driver refuses stays counted.
  bool execute_memory_calls = true;
  // The same for devices, channel groups and channels. Off: a handle that RM chooses is not seen, and a channel that
  // RM refuses is reported nevertheless.
  bool execute_channel_calls = true;
};

}  // namespace tessera::guard
