#include "guard/gate/proxied_call.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "guard/request/tenant_memory.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

std::uint32_t Word(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t word;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

// Puts `address` into the argument, and the program's own address back when it ends. `offset` 0: nowhere.
class Redirected {
 public:
  Redirected(std::span<std::byte> argument, std::size_t offset, std::uint64_t own, const void* address)
      : at_(own == 0 || offset == 0 ? nullptr : argument.data() + offset), own_(own) {
    const auto value = reinterpret_cast<std::uint64_t>(address);
    if (at_) std::memcpy(at_, &value, sizeof value);
  }
  Redirected(const Redirected&) = delete;
  ~Redirected() {
    if (at_) std::memcpy(at_, &own_, sizeof own_);
  }

 private:
  std::byte* at_;
  std::uint64_t own_;
};

}  // namespace

bool ProxiedCall::CopyParams() {
  params_.fill({});
  copied_ = true;
  params_bytes_ = 0;
  if (request_.params != 0 && request_.params_bytes == 0) {
    // Only the driver knows how many bytes the class has: give it all that can be read there.
    params_bytes_ = ReadTenantUpTo(call_.tid, request_.params, params_);
  } else if (request_.params != 0) {
    errno = EINVAL;
    if (request_.params_bytes > params_.size()) return false;
    params_bytes_ = request_.params_bytes;
    if (!ReadTenant(call_.tid, request_.params, std::span(params_).first(params_bytes_))) return false;
  }
  std::copy_n(params_.begin(), params_bytes_, params_before_.begin());
  return true;
}

GateAnswer ProxiedCall::Execute(KernelBoundary& boundary, int file) {
  std::array<std::byte, 64> rights{};  // RS_ACCESS_MASK: a word today
  if (request_.rights != 0) ReadTenantUpTo(call_.tid, request_.rights, rights);
  std::array<std::byte, kMostArgumentBytes> before;
  std::copy(argument_.begin(), argument_.end(), before.begin());
  const bool is_alloc = request_.kind == Request::Kind::kAlloc, is_control = request_.kind == Request::Kind::kControl;
  int result;
  {
    const std::size_t params_at = is_alloc     ? offsetof(abi::Alloc, params)
                                  : is_control ? offsetof(abi::Control, params)
                                               : 0;
    const Redirected params(argument_, params_at, request_.params, params_.data());
    const Redirected mask(argument_, is_alloc ? offsetof(abi::Alloc, rights) : 0, request_.rights, rights.data());
    result = boundary.Execute(file, call_.request, argument_.data());
  }
  if (result < 0) return {.result = result};
  status_ = Word(argument_, request_.status_offset);
  // As in WriteStatus: the driver may have taken long, and the caller may be gone.
  const bool written =
      waits_() &&
      WriteTenantChanges(call_.tid, request_.params, std::span(params_before_).first(params_bytes_),
                         std::span(params_).first(params_bytes_)) &&
      waits_() && WriteTenantChanges(call_.tid, call_.address, std::span(before).first(argument_.size()), argument_);
  return {.result = written ? 0 : -EFAULT};
}

GateAnswer ProxiedCall::WriteStatus(std::uint32_t status) const {
  // Asked right before the write: the caller may have been killed, and its number be another process's.
  const bool written =
      waits_() && WriteTenant(call_.tid, call_.address + request_.status_offset, std::as_bytes(std::span(&status, 1)));
  return {.result = written ? 0 : -EFAULT};
}

std::uint32_t ProxiedCall::Object() const { return Word(argument_, request_.object_offset); }

}  // namespace tessera::guard
