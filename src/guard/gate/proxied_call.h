#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "guard/gate/gate_call.h"
#include "guard/gate/kernel_boundary.h"
#include "guard/record/tree_record.h"
#include "guard/request/requests.h"

namespace tessera::guard {

// A program's ioctl on the driver, made in the program's place: on a duplicate of its file, with copies of its argument
// and of the parameters that the argument points to (NVIDIA: pAllocParms of NVOS21 and NVOS64, params of NVOS54). The
// program's memory is read once: the checked copy is what the driver gets. The driver's answer is copied back.
//
// The copies lie in the call in hand, which outlives the daemon: a daemon that takes over a call that was made already
// finishes it with the driver's answer, and does not make it again.
class ProxiedCall {
 public:
  // `hand.argument_before` was decoded into `request`. All four outlive the object.
  ProxiedCall(const GateCall& call, const Request& request, CallInHand& hand, const StillWaits& waits)
      : call_(call), request_(request), hand_(hand), waits_(waits) {}

  // Of a call in hand: RM answered it before this daemon served it.
  static bool WasMade(const CallInHand& hand, const Request& request);
  bool Made() const { return hand_.stage != CallInHand::Stage::kReceived; }

  // False with errno set. To be called before Execute, unless the request has no parameters beside its argument.
  bool CopyParams();

  // Makes the call on the borrowed `file`. -EFAULT: the driver made it, and the program could not be told.
  GateAnswer Execute(KernelBoundary& boundary, int file);

  // Ends the call without making it: the program sees this status of RM. -EFAULT where its memory cannot be written.
  GateAnswer WriteStatus(std::uint32_t status) const;

  const GateCall& call() const { return call_; }
  const Request& request() const { return request_; }
  const StillWaits& waits() const { return waits_; }
  // As the program gave them, then as the driver left them; zeros beyond the program's. Empty before CopyParams.
  std::span<const std::byte> params() const {
    return std::span(hand_.params).first(hand_.copied != 0 ? hand_.params.size() : 0);
  }
  // The parameters alone, as many as the program gave.
  std::span<const std::byte> given_params() const { return std::span(hand_.params).first(hand_.params_bytes); }

  // After Execute. RM's status; kNotSupported when the ioctl itself failed.
  std::uint32_t status() const { return status_; }
  // The handle of the new object, which RM may have chosen.
  std::uint32_t Object() const;
  // Bytes of GPU memory that a request of Kind::kHeapAlloc (NV_ESC_RM_VID_HEAP_CONTROL) got.
  std::uint64_t HeapBytes() const { return Decode(NumberOf(call_.request), Argument()).bytes; }

 private:
  std::span<std::byte> Argument() const { return std::span(hand_.argument).first(hand_.argument_bytes); }
  void MakeCall(KernelBoundary& boundary, int file);

  const GateCall& call_;
  const Request& request_;
  CallInHand& hand_;
  const StillWaits& waits_;
  std::uint32_t status_ = channel::abi::kNotSupported;
};

}  // namespace tessera::guard
