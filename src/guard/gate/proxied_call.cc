#include "guard/gate/proxied_call.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/fault.h"
#include "guard/request/tenant_memory.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

std::uint32_t Word(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t word;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

// Put into the status before RM is asked, and never said by RM.
constexpr std::uint32_t kNotAnswered = 0x7e55e2a0;

// Where the argument has the addresses of the parameters and of the mask of rights; 0: nowhere.
std::size_t ParamsAt(const Request& request) {
  if (request.params == 0) return 0;
  if (request.kind == Request::Kind::kAlloc) return offsetof(abi::Alloc, params);
  return request.kind == Request::Kind::kControl ? offsetof(abi::Control, params) : 0;
}
std::size_t RightsAt(const Request& request) {
  return request.kind == Request::Kind::kAlloc && request.rights != 0 ? offsetof(abi::Alloc, rights) : 0;
}

void PutAddress(std::span<std::byte> argument, std::size_t offset, std::uint64_t address) {
  if (offset != 0) std::memcpy(argument.data() + offset, &address, sizeof address);
}

}  // namespace

bool ProxiedCall::WasMade(const CallInHand& hand, const Request& request) {
  if (hand.stage == CallInHand::Stage::kExecuted) return true;
  return hand.stage == CallInHand::Stage::kExecuting && Word(hand.argument, request.status_offset) != kNotAnswered;
}

bool ProxiedCall::CopyParams() {
  if (Made()) return true;  // the driver has answered into the copy
  hand_.params.fill({});
  hand_.copied = 1;
  hand_.params_bytes = 0;
  if (request_.params != 0 && request_.params_bytes == 0) {
    // Only the driver knows how many bytes the class has: give it all that can be read there.
    hand_.params_bytes = static_cast<std::uint32_t>(ReadTenantUpTo(call_.tid, request_.params, hand_.params));
  } else if (request_.params != 0) {
    errno = EINVAL;
    if (request_.params_bytes > hand_.params.size()) return false;
    hand_.params_bytes = request_.params_bytes;
    if (!ReadTenant(call_.tid, request_.params, std::span(hand_.params).first(hand_.params_bytes))) return false;
  }
  std::copy_n(hand_.params.begin(), hand_.params_bytes, hand_.params_before.begin());
  return true;
}

// Nothing but the daemon's death can come between the stores: RM's answer is in the copy as soon as the call is done.
void ProxiedCall::MakeCall(KernelBoundary& boundary, int file) {
  std::array<std::byte, 64> rights{};  // RS_ACCESS_MASK: a word today
  if (request_.rights != 0) ReadTenantUpTo(call_.tid, request_.rights, rights);
  const auto argument = Argument();
  PutAddress(argument, ParamsAt(request_), reinterpret_cast<std::uint64_t>(hand_.params.data()));
  PutAddress(argument, RightsAt(request_), reinterpret_cast<std::uint64_t>(rights.data()));
  std::memcpy(argument.data() + request_.status_offset, &kNotAnswered, sizeof kNotAnswered);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  hand_.stage = CallInHand::Stage::kExecuting;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  PassFault("gate.call.begins");
  hand_.result = boundary.Execute(file, call_.request, argument.data());
  PassFault("gate.call.made");
  std::atomic_signal_fence(std::memory_order_seq_cst);
  hand_.stage = CallInHand::Stage::kExecuted;
}

GateAnswer ProxiedCall::Execute(KernelBoundary& boundary, int file) {
  if (!Made()) MakeCall(boundary, file);
  const auto argument = Argument();
  PutAddress(argument, ParamsAt(request_), request_.params);
  PutAddress(argument, RightsAt(request_), request_.rights);
  if (hand_.result < 0) return {.result = static_cast<int>(hand_.result)};
  status_ = Word(argument, request_.status_offset);
  // As in WriteStatus: the driver may have taken long, and the caller may be gone.
  const auto before = std::span(hand_.argument_before).first(hand_.argument_bytes);
  const bool written =
      waits_() &&
      WriteTenantChanges(call_.tid, request_.params, std::span(hand_.params_before).first(hand_.params_bytes),
                         std::span(hand_.params).first(hand_.params_bytes)) &&
      waits_() && WriteTenantChanges(call_.tid, call_.address, before, argument);
  return {.result = written ? 0 : -EFAULT};
}

GateAnswer ProxiedCall::WriteStatus(std::uint32_t status) const {
  // Asked right before the write: the caller may have been killed, and its number be another process's.
  const bool written =
      waits_() && WriteTenant(call_.tid, call_.address + request_.status_offset, std::as_bytes(std::span(&status, 1)));
  return {.result = written ? 0 : -EFAULT};
}

std::uint32_t ProxiedCall::Object() const { return Word(hand_.argument, request_.object_offset); }

}  // namespace tessera::guard
