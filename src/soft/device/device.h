#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

class Context;
class Pool;

// A soft GPU as this process sees it.
class Device {
 public:
  // `index` is the number that the program knows, `shared_index` that of the machine: they differ where
  // CUDA_VISIBLE_DEVICES says so.
  Device(SharedState& state, int index, int shared_index);
  ~Device();

  int index() const { return index_; }
  // The soft GPU that does the work now. A restore on another one changes it; no call is inside of the API then.
  int shared_index() const { return shared_index_; }
  void MoveTo(int shared_index) { shared_index_ = shared_index; }
  // The one that the program was told about at first, and is for ever: its UUID and its address on the bus.
  int told_index() const { return told_index_; }
  const Spec& spec() const { return state_.spec(); }
  SharedState& state() { return state_; }
  // That the program may use: all, or its ceiling as a client of MPS.
  std::uint32_t multiprocessors() const;
  Context& primary() { return *primary_; }
  // The pool that cuMemAllocAsync takes from; it lives as long as the device.
  Pool& default_pool() { return *default_pool_; }
  Pool& pool() { return *pool_; }
  void set_pool(Pool& pool) { pool_ = &pool; }

  // False if the device has less than `bytes` left.
  bool Charge(std::uint64_t bytes) { return state_.Charge(shared_index_, bytes); }
  void Uncharge(std::uint64_t bytes) { state_.Uncharge(shared_index_, bytes); }
  std::uint64_t FreeBytes();

  // The answer of cuDeviceGetAttribute; 0 for features that the soft GPU does not have.
  int Attribute(cuda::CUdevice_attribute attribute) const;
  // "0000:5f:00.0"
  std::string BusId() const;

 private:
  SharedState& state_;
  const int index_;
  const int told_index_;
  std::atomic<int> shared_index_;
  std::unique_ptr<Context> primary_;
  std::unique_ptr<Pool> default_pool_;
  Pool* pool_;  // the current one
};

// Attaches to the shared state, once per process: the answer stays the same.
cuda::CUresult InitDriver();
// CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED before InitDriver and in a child forked after it, or what the process was
// lost by.
cuda::CUresult DriverState();
// A checkpoint or a restore has destroyed what the process has on GPUs: every later call returns `error`.
void LoseDriver(cuda::CUresult error);
// After InitDriver only.
const std::vector<std::unique_ptr<Device>>& Devices();
// Null if there is no device of this number.
Device* DeviceOf(cuda::CUdevice ordinal);

}  // namespace tessera::soft
