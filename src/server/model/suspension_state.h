#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace tessera::server {

// How far a program is on its way off its GPUs, or back.
enum class SuspensionPhase {
  kNone,       // it is on its GPUs
  kPrepares,   // likewise, and works: the process that makes the driver's calls for it starts
  kDrains,     // its gates are closed, and what it had queued ends
  kLeaves,     // what can be moved goes out, and the program lets go of it
  kSaves,      // the driver saves the rest, contexts included
  kFiles,      // nothing of it is on a GPU, and what it has in host memory goes to a file
  kSuspended,  // nothing of it is on a GPU
  kReads,      // likewise, and what is in the file comes to host memory
  kReturns,    // room is made for what the driver saved
  kRestores,   // the driver brings that back
};

// Name of the phase in the API.
constexpr const char* NameOf(SuspensionPhase phase) {
  switch (phase) {
    case SuspensionPhase::kNone:
      return "none";
    case SuspensionPhase::kPrepares:
      return "prepares";
    case SuspensionPhase::kDrains:
      return "drains";
    case SuspensionPhase::kLeaves:
      return "leaves";
    case SuspensionPhase::kSaves:
      return "saves";
    case SuspensionPhase::kFiles:
      return "files";
    case SuspensionPhase::kSuspended:
      return "suspended";
    case SuspensionPhase::kReads:
      return "reads";
    case SuspensionPhase::kReturns:
      return "returns";
    case SuspensionPhase::kRestores:
      return "restores";
  }
  return "";
}

// A process's part in the suspension of its program. Belongs to the program's Suspension.
struct SuspensionState {
  SuspensionPhase phase = SuspensionPhase::kNone;
  Nanos since = 0;             // when that began
  std::uint64_t room = 0;      // kFiles to kReturns: bytes of room that it had when it left, contexts apart
  std::uint64_t bytes = 0;     // likewise: of GPU memory that it needs before it can come back, contexts included
  std::uint32_t saved_on = 0;  // from kSaves on: the GPU on which it was
  std::uint32_t claimed = 0;   // wire::Attach::away, when it attached
  bool in_place = false;       // what leaves it stays in the GPU's memory, where the program holds nothing of it
  bool taken = false;          // kReturns, kRestores: it has these
  bool by_itself = false;      // it is suspended, or to be, because it was idle: its first call brings it back
  std::string error;           // why the last attempt to suspend, resume or migrate it failed; empty: it did not

  bool Begun() const { return phase != SuspensionPhase::kNone; }
  // Its gates stay closed, and its channels are not frozen: the driver needs them.
  bool Holds() const { return phase > SuspensionPhase::kPrepares; }
  // It has drained. Its memory leaves the GPU, and does not come back.
  bool Away() const { return phase >= SuspensionPhase::kLeaves; }
  // Nothing of it is on the GPU.
  bool Absent() const {
    return (phase >= SuspensionPhase::kFiles && phase <= SuspensionPhase::kReads) ||
           (phase == SuspensionPhase::kReturns && !taken);
  }
};

}  // namespace tessera::server
