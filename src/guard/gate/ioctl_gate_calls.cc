// The calls that the gate counts: NV_ESC_RM_ALLOC (NVOS21, NVOS64), NV_ESC_RM_VID_HEAP_CONTROL (NVOS32),
// NV_ESC_RM_FREE (NVOS00), NV_ESC_RM_DUP_OBJECT (NVOS55), and NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "guard/gate/ioctl_gate.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

bool InArgument(const Request& request) { return request.kind == Request::Kind::kHeapAlloc; }

// Bytes that an allocation of memory asks for, or after Execute the bytes that it got: the driver rounds up.
std::uint64_t BytesAskedFor(const ProxiedCall& proxied) {
  return InArgument(proxied.request()) ? proxied.HeapBytes() : MemoryBytes(proxied.params());
}

// RM's instance of the device (NV01_DEVICE_0) that an allocation makes, from its parameters.
std::uint32_t InstanceOf(const ProxiedCall& proxied) {
  const Request& request = proxied.request();
  const bool device = request.kind == Request::Kind::kAlloc && request.cls == abi::kDevice;
  return device ? Detail(request.cls, proxied.params()) : MemoryObjects::kUnknownDevice;
}

channel::ObjectEvent EventOf(const ProxiedCall& proxied, std::uint32_t object) {
  const Request& request = proxied.request();
  return {.kind = channel::ObjectEvent::Kind::kAlloc,
          .fd = proxied.call().fd,
          .client = request.client,
          .parent = request.parent,
          .object = object,
          .cls = request.cls,
          .detail = Detail(request.cls, proxied.params())};
}

}  // namespace

IoctlGate::Answer IoctlGate::Allocate(ProxiedCall& proxied, bool is_memory) {
  const Request& request = proxied.request();
  Clients::Loan loan = clients_.Borrow(proxied.call(), proxied.waits());
  if (loan.error != 0) return {.result = -loan.error};
  const auto owner = clients_.OwnerOf(loan, proxied.call(), request.client);
  if (!owner) return proxied.WriteStatus(abi::kInvalidClient);
  // If the call is counted before RM sees it, RM must confirm now that the client still belongs to this file.
  const bool execute = is_memory ? options_.execute_memory_calls : options_.execute_channel_calls;
  if (!execute && !Answers(boundary_, loan.file.Get(), request.client)) {
    return proxied.WriteStatus(abi::kInvalidClient);
  }
  if (!InArgument(request) && !proxied.CopyParams()) return {.result = -errno};
  const std::uint64_t bytes = is_memory ? BytesAskedFor(proxied) : 0;
  ForgetMade(proxied);
  const std::uint32_t device = clients_.objects().DeviceOf(request.client, request.parent);
  if (!clients_.objects().HasRoom(request.client)) return OutOfMemory(proxied);
  const auto paid = clients_.Charge(*owner, device, bytes);
  if (!paid) return {.leave = true};
  if (!*paid && proxied.Made()) {
    // The daemon before this one made it, and there is no room for it any more.
    made_ = {
        .file = std::move(loan.file), .client = request.client, .parent = request.parent, .object = proxied.Object()};
    Done(false);
  }
  if (!*paid) return OutOfMemory(proxied);
  if (!execute) return CountOnly(proxied, bytes);
  return AllocateHere(proxied, std::move(loan), is_memory, *owner, device, bytes);
}

IoctlGate::Answer IoctlGate::AllocateHere(ProxiedCall& proxied, Clients::Loan loan, bool is_memory, pid_t owner,
                                          std::uint32_t device, std::uint64_t bytes) {
  const Request& request = proxied.request();
  const Answer answer = Execute(proxied, loan);
  if (proxied.status() != abi::kOk) {
    clients_.GiveBack(owner, device, bytes);
    return answer;
  }
  const std::uint32_t object = proxied.Object();
  const std::uint64_t got = is_memory ? BytesAskedFor(proxied) : 0;
  const auto more = got <= bytes ? true : clients_.Charge(owner, device, got - bytes);
  if (!more) return {.leave = true};
  const bool fits = *more;
  const auto event = EventOf(proxied, object);
  clients_.Add(request, object, fits ? std::max(bytes, got) : bytes, InstanceOf(proxied), is_memory ? nullptr : &event);
  made_ = {.file = std::move(loan.file), .client = request.client, .parent = request.parent, .object = object};
  if (fits && answer.result == 0) return answer;
  Done(false);
  return fits ? answer : OutOfMemory(proxied);
}

// A call that the daemon before this one made: its object may be in the account already. It is counted once more below.
void IoctlGate::ForgetMade(const ProxiedCall& proxied) {
  if (proxied.Made()) clients_.Freed(proxied.request().client, proxied.Object());
}

IoctlGate::Answer IoctlGate::Execute(ProxiedCall& proxied, const Clients::Loan& loan) {
  ++counts_.executed;
  return proxied.Execute(boundary_, loan.file.Get());
}

IoctlGate::Answer IoctlGate::OutOfMemory(const ProxiedCall& proxied) {
  ++counts_.out_of_memory;
  return proxied.WriteStatus(abi::kNoMemory);
}

MemoryObjects::Handle IoctlGate::Named(const Request& request) {
  return request.object != 0 ? request.object : ++last_unnamed_;
}

IoctlGate::Answer IoctlGate::CountOnly(const ProxiedCall& proxied, std::uint64_t bytes) {
  const Request& request = proxied.request();
  const bool told = request.kind == Request::Kind::kAlloc && request.cls != abi::kMemoryLocal && request.object != 0;
  const auto event = EventOf(proxied, request.object);
  clients_.Add(request, Named(request), bytes, InstanceOf(proxied), told ? &event : nullptr);
  return Pass();
}

IoctlGate::Answer IoctlGate::Free(ProxiedCall& proxied) {
  const Request& request = proxied.request();
  // A free of what was never counted changes nothing here. A handle that another thread puts there while it passes is
  // only counted for too long.
  if (!proxied.Made() && !clients_.objects().Knows(request.client, request.object)) return Pass();
  const Clients::Loan loan = clients_.Borrow(proxied.call(), proxied.waits());
  if (loan.error != 0) return {.result = -loan.error};
  if (!options_.execute_memory_calls) {
    if (clients_.OwnerOf(loan, proxied.call(), request.client)) clients_.Freed(request.client, request.object);
    return Pass();
  }
  const Answer answer = Execute(proxied, loan);
  if (proxied.status() == abi::kOk) clients_.Freed(request.client, request.object);
  return answer;
}

IoctlGate::Answer IoctlGate::Dup(ProxiedCall& proxied) {
  const Request& request = proxied.request();
  Clients::Loan loan = clients_.Borrow(proxied.call(), proxied.waits());
  if (loan.error != 0) return {.result = -loan.error};
  if (!clients_.OwnerOf(loan, proxied.call(), request.client)) return proxied.WriteStatus(abi::kInvalidClient);
  ForgetMade(proxied);
  if (!clients_.objects().HasRoom(request.client)) return OutOfMemory(proxied);
  if (!options_.execute_memory_calls) {
    clients_.Dup(request, Named(request));
    return Pass();
  }
  const Answer answer = Execute(proxied, loan);
  if (proxied.status() != abi::kOk) return answer;
  const std::uint32_t object = proxied.Object();
  clients_.Dup(request, object);
  made_ = {.file = std::move(loan.file), .client = request.client, .parent = request.parent, .object = object};
  if (answer.result != 0) Done(false);
  return answer;
}

IoctlGate::Answer IoctlGate::StopOwnChannels(ProxiedCall& proxied, const Decision& decision) {
  const Clients::Loan loan = clients_.Borrow(proxied.call(), proxied.waits());
  if (loan.error != 0) return {.result = -loan.error};
  // Checked once more on the copy that the driver is going to get.
  if (!proxied.CopyParams()) return {.result = -errno};
  bool own = Decide(proxied.request(), proxied.given_params()).action == Action::kOwnChannels;
  abi::DisableChannels channels;
  std::memcpy(&channels, proxied.params().data(), sizeof channels);
  for (std::uint32_t i = 0; own && i < channels.channels; ++i) {
    const bool asked = i > 0 && channels.client[i] == channels.client[i - 1];
    own = asked || clients_.IsOwn(channels.client[i], loan.pid);
  }
  if (!own) {
    Refuse(proxied.call(), 0, decision.why);
    return proxied.WriteStatus(abi::kInsufficientPermissions);
  }
  return Execute(proxied, loan);
}

}  // namespace tessera::guard
