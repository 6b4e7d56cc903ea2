#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "guard/gate/gate_call.h"
#include "guard/gate/kernel_boundary.h"
#include "guard/request/requests.h"

namespace tessera::guard {

// A program's ioctl on the driver, made in the program's place: on a duplicate of its file, with copies of its argument
// and of the parameters that the argument points to (NVIDIA: pAllocParms of NVOS21 and NVOS64, params of NVOS54). The
// program's memory is read once: the checked copy is what the driver gets. The driver's answer is copied back.
class ProxiedCall {
 public:
  // `argument` is the copy that was decoded into `request`. All four outlive the object.
  ProxiedCall(const GateCall& call, const Request& request, std::span<std::byte> argument, const StillWaits& waits)
      : call_(call), request_(request), argument_(argument), waits_(waits) {}

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
  std::span<const std::byte> params() const { return std::span(params_).first(copied_ ? params_.size() : 0); }
  // The parameters alone, as many as the program gave.
  std::span<const std::byte> given_params() const { return std::span(params_).first(params_bytes_); }

  // After Execute. RM's status; kNotSupported when the ioctl itself failed.
  std::uint32_t status() const { return status_; }
  // The handle of the new object, which RM may have chosen.
  std::uint32_t Object() const;
  // Bytes of GPU memory that a request of Kind::kHeapAlloc (NV_ESC_RM_VID_HEAP_CONTROL) got.
  std::uint64_t HeapBytes() const { return Decode(NumberOf(call_.request), argument_).bytes; }

 private:
  static constexpr std::size_t kMostParamBytes = 4096;

  const GateCall& call_;
  const Request& request_;
  const std::span<std::byte> argument_;
  const StillWaits& waits_;
  std::uint32_t status_ = channel::abi::kNotSupported;
  bool copied_ = false;
  std::size_t params_bytes_ = 0;
  std::array<std::byte, kMostParamBytes> params_before_, params_;  // filled by CopyParams
};

}  // namespace tessera::guard
