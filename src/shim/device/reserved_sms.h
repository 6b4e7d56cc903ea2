// SMs that are a vGPU's own. In a space that reserves SMs, the primary context of the program's GPU has a green context
// with the vGPU's SMs, and each thread works in that instead: its default stream, its streams and its graphs then use
// these SMs and no others, and no other vGPU of the space uses them (docs/hardware-log.md, 2026-11-25). If the daemon
// moves them, threads work in another green context from then on, as long as nothing keeps the SMs of the first.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "cuda/cuda_abi.h"
#include "shim/gate/gate_keeper.h"

namespace tessera::shim {

// Some of the groups into which the driver splits a GPU's SMs.
struct SmGroups {
  std::size_t first = 0, count = 0;
};

// The groups, of these sizes, of the part [from, to) of all SMs, in hundredths of a percent. Each end is rounded down
// to the beginning of a group, so parts that lie side by side leave out none. None: the part is less than one.
SmGroups GroupsOf(unsigned from, unsigned to, const std::vector<unsigned>& sizes);

// Whether the vGPU of this process has SMs of its own.
bool HasReservedSms();

// Makes the calling thread work in them, if its current context is a primary one, or one of where they were before. An
// error if that cannot be, which stays, and is said on stderr once: the thread must not submit then. Success where
// nothing is reserved, or no context is current. Any thread.
cuda::CUresult EnterReservedSms();

// Whether there is a green context with them, and (InReservedSms) whether the calling thread works in it. Take no lock.
inline std::atomic<cuda::CUcontext> context_of_reserved_sms{nullptr};  // reserved_sms.cc alone writes it
inline bool AnyInReservedSms() { return context_of_reserved_sms.load(std::memory_order_relaxed) != nullptr; }
bool InReservedSms();

// The same, before the program makes a stream or a graph: from now on, its SMs do not move. If it is in all SMs
// (sm.burst), waits until its work has ended, and goes back to its own. Any thread.
cuda::CUresult PinReservedSms();
// A stream is gone that was made after PinReservedSms, or could not be made.
void UnpinReservedSms();

// Moves to where the daemon's page says that the SMs are, unless something pins them. On the pacer's thread of the
// device, which is the only one of a program in a space.
void FollowReservedSms(FollowedPage& page, GateKeeper& gates, cuda::CUdevice device);
// Tells the page about them: another one is followed now. Not with the mutex of a gate keeper held.
void ReportReservedSms(wire::Page& page, cuda::CUdevice device);

// A call that would leave them: says so, and returns its error.
cuda::CUresult RefuseBesideReservedSms(const char* call);

// The green contexts that this process has made for them.
std::vector<cuda::CUgreenCtx> ReservedGreenContexts();
// They were destroyed.
void ForgetReservedGreenContexts();

}  // namespace tessera::shim
