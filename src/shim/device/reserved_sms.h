// SMs that are a vGPU's own. In a space that reserves SMs, the primary context of the program's GPU has a green context
// with the vGPU's SMs, and each thread works in that instead: its default stream, its streams and its graphs then use
// these SMs and no others, and no other vGPU of the space uses them (docs/hardware-log.md, 2026-11-25).
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "cuda/cuda_abi.h"

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

// How many SMs of the device, which is the only one of a program in a space, are the vGPU's own; 0: its part is less
// than one group, or the driver has no green contexts.
unsigned ReservedSms(cuda::CUdevice device);

// Makes the calling thread work in them, if its current context is a primary one. An error if that cannot be, which
// stays, and is said on stderr once: the thread must not submit then. Success where nothing is reserved, or no context
// is current. Any thread.
cuda::CUresult EnterReservedSms();

// Whether there is a green context with them, and (InReservedSms) whether the calling thread works in it. Take no lock.
inline std::atomic<cuda::CUcontext> context_of_reserved_sms{nullptr};  // reserved_sms.cc alone writes it
inline bool AnyInReservedSms() { return context_of_reserved_sms.load(std::memory_order_relaxed) != nullptr; }
bool InReservedSms();

// A call that would leave them: says so, and returns its error.
cuda::CUresult RefuseBesideReservedSms(const char* call);

// The green context of this process; null: there is none.
cuda::CUgreenCtx ReservedGreenContext();
// It was destroyed.
void ForgetReservedGreenContext();

}  // namespace tessera::shim
