// The gate's calls that it makes in the programs' place.
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "guard/gate/ioctl_gate.h"
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

// False with errno set.
bool IoctlGate::CopyParams(const Call& call, const Request& request) {
  params_.fill({});
  params_bytes_ = 0;
  if (request.params != 0 && request.params_bytes == 0) {
    // As many as the class has, which the driver knows: give it whatever lies there.
    params_bytes_ = ReadTenantUpTo(call.tid, request.params, params_);
  } else if (request.params != 0) {
    errno = EINVAL;
    if (request.params_bytes > params_.size()) return false;
    params_bytes_ = request.params_bytes;
    if (!ReadTenant(call.tid, request.params, std::span(params_).first(params_bytes_))) return false;
  }
  std::copy_n(params_.begin(), params_bytes_, params_before_.begin());
  return true;
}

// Makes the call on the borrowed file with the copied arguments, and copies the driver's answer back. *status says what
// RM answered, or that it was not asked.
IoctlGate::Answer IoctlGate::Execute(const Call& call, const Request& request, const Loan& loan, Argument argument,
                                     std::uint32_t* status, const Waiting& waiting) {
  std::array<std::byte, 64> rights{};  // RS_ACCESS_MASK: a word today
  if (request.rights != 0) ReadTenantUpTo(call.tid, request.rights, rights);
  std::array<std::byte, kMostArgumentBytes> before;
  std::copy(argument.begin(), argument.end(), before.begin());
  const bool is_alloc = request.kind == Request::Kind::kAlloc, is_control = request.kind == Request::Kind::kControl;
  int result;
  {
    const std::size_t params_at = is_alloc     ? offsetof(abi::Alloc, params)
                                  : is_control ? offsetof(abi::Control, params)
                                               : 0;
    const Redirected params(argument, params_at, request.params, params_.data());
    const Redirected mask(argument, is_alloc ? offsetof(abi::Alloc, rights) : 0, request.rights, rights.data());
    ++counts_.executed;
    result = boundary_.Execute(loan.file.Get(), call.request, argument.data());
  }
  if (result < 0) {
    *status = abi::kNotSupported;
    return {.result = result};
  }
  *status = Word(argument, request.status_offset);
  // As in WriteStatus: the driver may have taken its time. What was made for a caller that is gone is freed by Done.
  const bool written = waiting() &&
                       WriteTenantChanges(call.tid, request.params, std::span(params_before_).first(params_bytes_),
                                          std::span(params_).first(params_bytes_)) &&
                       waiting() &&
                       WriteTenantChanges(call.tid, call.address, std::span(before).first(argument.size()), argument);
  return {.result = written ? 0 : -EFAULT};
}

IoctlGate::Answer IoctlGate::Allocate(const Call& call, const Request& request, bool is_memory, Argument argument,
                                      const Waiting& waiting) {
  const bool in_argument = request.kind == Request::Kind::kHeapAlloc;
  Loan loan = Lend(call, waiting);
  if (loan.error != 0) return {.result = -loan.error};
  const auto owner = OwnerOf(loan, call, request.client);
  if (!owner) return WriteStatus(call, request, abi::kInvalidClient, waiting);
  // Where RM does not get to see the call before it is counted, it has to say now that the client is still this one.
  const bool execute = is_memory ? options_.execute_memory_calls : options_.execute_channel_calls;
  if (!execute && !Answers(loan.file.Get(), request.client)) {
    return WriteStatus(call, request, abi::kInvalidClient, waiting);
  }
  params_bytes_ = 0;
  if (!in_argument && !CopyParams(call, request)) return {.result = -errno};
  const std::uint64_t bytes = !is_memory ? 0 : in_argument ? request.bytes : MemoryBytes(params_);
  const std::uint32_t device = memory_.DeviceOf(request.client, request.parent);
  if (!memory_.HasRoom(request.client) || !Charge(*owner, device, bytes)) return OutOfMemory(call, request, waiting);
  if (!execute) return CountOnly(call, request, *owner, bytes);
  std::uint32_t status = abi::kNotSupported;
  const Answer answer = Execute(call, request, loan, argument, &status, waiting);
  if (status != abi::kOk) {
    if (bytes > 0) hooks_.give_back(*owner, device, bytes);
    return answer;
  }
  const std::uint32_t object = Word(argument, request.object_offset);
  // The driver rounds up, and says to what.
  const std::uint64_t got = !is_memory    ? 0
                            : in_argument ? Decode(NumberOf(call.request), argument).bytes
                                          : MemoryBytes(params_);
  const bool fits = got <= bytes || Charge(*owner, device, got - bytes);
  Apply(memory_.Add(request.client, request.parent, object, fits ? std::max(bytes, got) : bytes, InstanceOf(request)));
  if (!is_memory) Tell(call, request, *owner, object);
  made_ = {.file = std::move(loan.file), .client = request.client, .parent = request.parent, .object = object};
  if (fits && answer.result == 0) return answer;
  Done(false);
  return fits ? answer : OutOfMemory(call, request, waiting);
}

// Of a device, from its copied params.
std::uint32_t IoctlGate::InstanceOf(const Request& request) const {
  const bool device = request.kind == Request::Kind::kAlloc && request.cls == abi::kDevice;
  return device ? Detail(request.cls, params_) : MemoryObjects::kUnknownDevice;
}

IoctlGate::Answer IoctlGate::OutOfMemory(const Call& call, const Request& request, const Waiting& waiting) {
  ++counts_.out_of_memory;
  return WriteStatus(call, request, abi::kNoMemory, waiting);
}

IoctlGate::Answer IoctlGate::CountOnly(const Call& call, const Request& request, pid_t owner, std::uint64_t bytes) {
  const MemoryObjects::Handle object = request.object != 0 ? request.object : ++last_unnamed_;
  Apply(memory_.Add(request.client, request.parent, object, bytes, InstanceOf(request)));
  if (request.kind == Request::Kind::kAlloc && request.cls != abi::kMemoryLocal && request.object != 0) {
    Tell(call, request, owner, request.object);
  }
  ++counts_.passed;
  return {.pass = true};
}

IoctlGate::Answer IoctlGate::Free(const Call& call, const Request& request, Argument argument, const Waiting& waiting) {
  // Of what was never counted it changes nothing, and a handle that another thread puts there while it passes is only
  // counted for too long.
  if (memory_.Knows(request.client, request.object)) {
    const Loan loan = Lend(call, waiting);
    if (loan.error != 0) return {.result = -loan.error};
    if (options_.execute_memory_calls) {
      params_bytes_ = 0;
      std::uint32_t status = abi::kNotSupported;
      const Answer answer = Execute(call, request, loan, argument, &status, waiting);
      if (status == abi::kOk) Freed(request.client, request.object);
      return answer;
    }
    if (OwnerOf(loan, call, request.client)) Freed(request.client, request.object);
  }
  ++counts_.passed;
  return {.pass = true};
}

IoctlGate::Answer IoctlGate::Dup(const Call& call, const Request& request, Argument argument, const Waiting& waiting) {
  Loan loan = Lend(call, waiting);
  if (loan.error != 0) return {.result = -loan.error};
  if (!OwnerOf(loan, call, request.client)) return WriteStatus(call, request, abi::kInvalidClient, waiting);
  if (!memory_.HasRoom(request.client)) return OutOfMemory(call, request, waiting);
  const auto count = [&](MemoryObjects::Handle object) {
    Apply(memory_.Dup(request.client, request.parent, object, request.source_client, request.source_object));
  };
  if (!options_.execute_memory_calls) {
    count(request.object != 0 ? request.object : ++last_unnamed_);
    ++counts_.passed;
    return {.pass = true};
  }
  params_bytes_ = 0;
  std::uint32_t status = abi::kNotSupported;
  const Answer answer = Execute(call, request, loan, argument, &status, waiting);
  if (status != abi::kOk) return answer;
  const std::uint32_t object = Word(argument, request.object_offset);
  count(object);
  made_ = {.file = std::move(loan.file), .client = request.client, .parent = request.parent, .object = object};
  if (answer.result != 0) Done(false);
  return answer;
}

IoctlGate::Answer IoctlGate::StopOwnChannels(const Call& call, const Request& request, const Decision& decision,
                                             Argument argument, const Waiting& waiting) {
  const Loan loan = Lend(call, waiting);
  if (loan.error != 0) return {.result = -loan.error};
  // Checked once more on the copy that the driver is going to get.
  if (!CopyParams(call, request)) return {.result = -errno};
  bool own = Decide(request, std::span(params_).first(params_bytes_)).action == Action::kOwnChannels;
  abi::DisableChannels channels;
  std::memcpy(&channels, params_.data(), sizeof channels);
  for (std::uint32_t i = 0; own && i < channels.channels; ++i) {
    const bool asked = i > 0 && channels.client[i] == channels.client[i - 1];
    // RM may have given out the number again: see that the client on this process's file is the one.
    own = asked ||
          (memory_.ProcessOf(channels.client[i]) == loan.pid && HolderAnswers(channels.client[i]).value_or(false));
  }
  if (!own) {
    Refuse(call, 0, decision.why);
    return WriteStatus(call, request, abi::kInsufficientPermissions, waiting);
  }
  std::uint32_t status;
  return Execute(call, request, loan, argument, &status, waiting);
}

void IoctlGate::Tell(const Call& call, const Request& request, pid_t owner, std::uint32_t object) {
  hooks_.object(owner, {.kind = channel::ObjectEvent::Kind::kAlloc,
                        .fd = call.fd,
                        .client = request.client,
                        .parent = request.parent,
                        .object = object,
                        .cls = request.cls,
                        .detail = Detail(request.cls, params_)});
}

void IoctlGate::Freed(std::uint32_t client, std::uint32_t object) {
  if (object == client) return End(client);
  if (const auto pid = memory_.ProcessOf(client); pid && !memory_.HoldsMemory(client, object)) {
    hooks_.object(*pid, {.kind = channel::ObjectEvent::Kind::kFree, .client = client, .object = object});
  }
  Apply(memory_.Free(client, object));
}

}  // namespace tessera::guard
