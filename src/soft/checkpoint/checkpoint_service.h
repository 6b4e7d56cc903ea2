#pragma once

namespace tessera::soft {

class SharedState;

// Starts the thread that does what other processes ask this one for: the steps of a checkpoint. Once per process, after
// InitDriver; it lives as long as the process, and `state` has to. Returns when others can find the process.
//
// The steps have the states and the errors of the driver (CUDA 13.0); docs/soft-gpu.md says which. A program can be
// killed in the middle of each (base/fault.h).
void StartCheckpointService(SharedState& state);

}  // namespace tessera::soft
