#pragma once

#include "cuda/abi_types.h"

namespace tessera::soft {

// The door that a process's calls of the API go through. While a checkpoint's lock has it closed, calls wait. What a
// call does and all that it calls is inside; of calls inside of calls only the outer one counts. Thread-safe.
class ApiCall {
 public:
  enum class Kind {
    kWaits,
    // As the driver's queries and waits for work (580.159.04, docs/hardware-log.md): of a process that is saved they
    // read memory that is gone, and end it by SIGSEGV.
    kReadsMemory,
  };
  // Waits until the door is open. Does not wait where the driver cannot be used: see state().
  explicit ApiCall(Kind kind = Kind::kWaits);
  ~ApiCall();
  ApiCall(const ApiCall&) = delete;

  // DriverState() behind the door: CUDA_SUCCESS if the call may go on.
  cuda::CUresult state() const { return state_; }

  // For the thread that locks the process. Closed, calls that come wait, and Inside() tells how many have not ended.
  static void Close();
  static void Open();
  // From now on the process is saved, or no longer.
  static void SetSaved(bool saved);
  static int Inside();

 private:
  cuda::CUresult state_;
  bool counted_ = false;
};

}  // namespace tessera::soft
