// A ledger of this process's allocations, so that a free gives back what the allocation took.
#pragma once

#include <cstdint>

#include "cuda/cuda_abi.h"
#include "shim/memory/arrival.h"
#include "shim/memory/room_account.h"

namespace tessera::shim {

// The charge for an allocation of `bytes`. The driver takes device memory in 2 MiB pages; smaller allocations share
// pages, in units of 512 bytes (measured: docs/hardware-log.md).
std::uint64_t ChargeOf(std::uint64_t bytes);

// An allocation as it was charged, to what account. `context`: the one whose end frees the allocation, null for what
// outlives contexts.
struct Entry {
  RoomAccount* room = nullptr;
  std::uint64_t charge = 0;
  cuda::CUcontext context = nullptr;
  wire::PinReason reason = wire::PinReason::kUnpaged;  // why it cannot be moved
};

// Device pointers, arrays and memory handles live in one table: their values never collide, each is an address or an
// opaque word of the driver's. An older entry under `key` is of memory that somehow ended unseen: it is given back.
void Remember(std::uint64_t key, const Entry& entry);
// Takes the entry out; an empty one if `key` is unknown (memory of other processes, made before, not counted).
Entry Forget(std::uint64_t key);
void GiveBack(const Entry& entry);
// The memory that is remembered under `key` cannot be moved for this reason from now on. Nothing if the key is unknown.
void ChangeReason(std::uint64_t key, wire::PinReason reason);

// Gives back the charges of a context that has ended: its allocations are gone with it.
void GiveBackOf(cuda::CUcontext context);

// Allocates by `make` what is charged as `charge` to `room` (null: not managed) and cannot be moved for `reason`, and
// remembers it under what `key()` says afterwards. CUDA_ERROR_OUT_OF_MEMORY without calling the driver if it would pass
// memory.max.
template <typename Make, typename Key>
cuda::CUresult Counted(RoomAccount* room, cuda::CUcontext context, std::uint64_t charge, wire::PinReason reason,
                       Make make, Key key);

// Frees by `free` what is remembered under `key`. Its charge is given back after the driver has freed it, so that two
// of the vGPU's processes never hold one byte; its entry goes before, because another thread may be given the same
// address as soon as it is free.
template <typename Free>
cuda::CUresult CountedFree(std::uint64_t key, Free free);

template <typename Make, typename Key>
cuda::CUresult Counted(RoomAccount* room, cuda::CUcontext context, std::uint64_t charge, wire::PinReason reason,
                       Make make, Key key) {
  if (!room || charge == 0) return make();
  if (!room->TakePinned(charge, reason)) return cuda::CUDA_ERROR_OUT_OF_MEMORY;
  const cuda::CUresult result = MakeWithRoom(room, make);
  if (result == cuda::CUDA_SUCCESS) {
    Remember(key(), {room, charge, context, reason});
  } else {
    room->GivePinned(charge, reason);
  }
  return result;
}

template <typename Free>
cuda::CUresult CountedFree(std::uint64_t key, Free free) {
  const Entry entry = Forget(key);
  const cuda::CUresult result = free();
  if (result == cuda::CUDA_SUCCESS) {
    GiveBack(entry);
  } else if (entry.room) {
    Remember(key, entry);
  }
  return result;
}

}  // namespace tessera::shim
