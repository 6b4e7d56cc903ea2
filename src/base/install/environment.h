#pragma once

#include <string_view>

namespace tessera {

// Whether an environment variable speaks to a program about GPUs, its libraries or its vGPU. Whoever starts the daemon
// may have set it for other programs: with CUDA_MPS_PIPE_DIRECTORY, the self-test would be a client of that MPS server
// and freeze its other clients. Neither the daemon nor a program that it starts inherits such variables.
bool IsOfOtherPrograms(std::string_view name);

// Removes them all from this process's environment, and from that of what it executes. Call it before there are
// threads.
void ForgetOtherPrograms();

}  // namespace tessera
