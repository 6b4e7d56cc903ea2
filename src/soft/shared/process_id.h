#pragma once

#include <sys/types.h>

#include <cstdint>

namespace tessera::soft {

// A process that cannot be mistaken for a later one with the same number, nor for one of another PID namespace.
struct ProcessId {
  pid_t pid = 0;                    // in its own PID namespace
  std::uint32_t pid_namespace = 0;  // inode number of /proc/PID/ns/pid
  std::uint64_t start_time = 0;     // clock ticks after boot, field 22 of /proc/PID/stat (proc(5))

  static ProcessId Self();
  // Its number here: its own one in its own namespace, another one seen from outside. 0 if it is not to be seen from
  // here: it has ended, or its namespace is none of those within ours.
  pid_t Here() const;
  // False when the process has ended, also while its parent has not collected it. `outermost` is a namespace which all
  // who are asked about are in, or inside: who is not to be seen from there has ended. From elsewhere, who is not to be
  // seen may well live, and is taken to.
  bool Alive(std::uint32_t outermost) const;
  // By a signal or a debugger: none of its threads runs. False if it is not to be seen from here.
  bool Stopped() const;

  bool operator==(const ProcessId&) const = default;
};

}  // namespace tessera::soft
