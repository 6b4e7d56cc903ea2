// What this process has on soft GPUs, off them and on them again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

struct PhysicalMemory;

// The contents themselves stay where they are: device memory of a soft GPU is memory of the process. What goes and
// comes is the use of devices: memory, contexts, channels, holds. Of the one thread that answers requests, while no
// call is inside of the API and no work is queued.
class DeviceContents {
 public:
  explicit DeviceContents(SharedState& state) : state_(state) {}

  // What a restore will fail with, if anything: CUDA_ERROR_UNKNOWN for host memory of cuMemCreate,
  // CUDA_ERROR_NOT_SUPPORTED for imported memory of the host or of a device (H200s, 580.159.04, of memory that was
  // mapped; a handle alone was not tried and counts as well). CUDA_SUCCESS: nothing stands in the way.
  static cuda::CUresult WhatEndsRestore();
  // Memory that no checkpoint can hold: managed memory, and memory of IPC handles, own or opened (NVIDIA's notes on
  // cuda-checkpoint, driver 570).
  static bool HasWhatEndsCheckpoint();

  // Off all devices. CUDA_ERROR_OUT_OF_MEMORY, and what was there stays there, if the host has too little for a copy of
  // the memory that can be exported.
  cuda::CUresult TakeOff();
  // On devices again: what was on device i on `to[i]`, to which the process's devices move. CUDA_ERROR_OUT_OF_MEMORY,
  // and nothing changes, if one of them has too little left.
  cuda::CUresult PutOn(const std::array<int, kMaxDevices>& to);

  std::uint64_t bytes() const;  // that were taken off

  // Lets go of memory that stayed on a device because somebody had a descriptor of it, once nobody has. False: there is
  // some.
  bool ForgetLeftBehind();

 private:
  struct TakenMemory {
    std::shared_ptr<PhysicalMemory> memory;
    int device = 0;
    std::uint64_t number = 0;
  };
  // Memory that others hold by a descriptor alone.
  struct LeftBehind {
    std::int32_t hold = kNoHold;
    std::string name;  // of the file, as /proc/PID/fd shows it
  };

  SharedState& state_;
  std::array<DeviceUse, kMaxDevices> uses_ = {};
  std::vector<TakenMemory> memories_;
  std::vector<LeftBehind> left_behind_;
};

}  // namespace tessera::soft
