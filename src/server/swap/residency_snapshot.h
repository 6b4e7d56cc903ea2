#pragma once

#include <cstdint>
#include <vector>

#include "sched/residency/residency_state.h"
#include "server/swap/mover_link.h"
#include "server/swap/residency_host.h"

namespace tessera::server {

// Whether the process has work on the GPU and no operator has frozen it. While it is frozen its memory need not be on
// the GPU, whatever waits.
bool HasWork(const Process& process);

// Writes the present state of a GPU's memory into `state`, of which the memory is used again. `file`: bytes that the
// swap file may hold. `last_moved` and `pool.full_until` are left to the caller.
void TakeSnapshot(const std::vector<VGpu*>& vgpus, const ResidencyHost& host, const MoverLink& link, std::uint64_t file,
                  Nanos now, sched::ResidencyState& state);

// Notes which processes have something to do, and are kept from it by where memory lies. `state` has the processes in
// the order of `vgpus`.
void NoteWaits(const std::vector<VGpu*>& vgpus, const sched::ResidencyState& state, Nanos now);

}  // namespace tessera::server
