// SMs that are a vGPU's own. In a space that reserves SMs, the primary context of the program's GPU has a green context
// with the vGPU's SMs, and each thread works in that instead: its default stream, its streams and its graphs then use
// these SMs and no others, and no other vGPU of the space uses them (docs/hardware-log.md, 2026-11-25).
#pragma once

#include "cuda/cuda_abi.h"

namespace tessera::shim {

// Some of the groups into which the driver splits a GPU's SMs.
struct SmGroups {
  unsigned first = 0, count = 0;
};

// Those that lie whole in [from, to) hundredths of a percent of all, from 0 to 10000.
constexpr SmGroups GroupsWithin(unsigned from, unsigned to, unsigned groups) {
  const unsigned first = (from * groups + 9999) / 10000, end = to * groups / 10000;
  return first < end ? SmGroups{first, end - first} : SmGroups{};
}

// Whether the vGPU of this process has SMs of its own.
bool HasReservedSms();

// How many SMs of the device, which is the only one of a program in a space, are the vGPU's own; 0: its part is less
// than one group, or the driver has no green contexts.
unsigned ReservedSms(cuda::CUdevice device);

// Makes the calling thread work in them, if its current context is a primary one. An error if that cannot be, which
// stays, and is said on stderr once: the thread must not submit then. Success where nothing is reserved, or no context
// is current. Any thread.
cuda::CUresult EnterReservedSms();

// A call that would leave them: says so, and returns its error.
cuda::CUresult RefuseBesideReservedSms(const char* call);

// The green context of this process; null: there is none.
cuda::CUgreenCtx ReservedGreenContext();
// It was destroyed.
void ForgetReservedGreenContext();

}  // namespace tessera::shim
