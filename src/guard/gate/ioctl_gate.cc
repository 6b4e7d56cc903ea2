#include "guard/gate/ioctl_gate.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "guard/request/tenant_memory.h"

namespace tessera::guard {
namespace {

// With the number by which a maintainer finds the request in the driver's headers.
std::string WithNumber(const Request& request, std::string_view why) {
  char number[24];
  const bool control = request.kind == Request::Kind::kControl;
  std::snprintf(number, sizeof number, control ? " (0x%x)" : " (class 0x%x)", control ? request.command : request.cls);
  return std::string(why) + number;
}

}  // namespace

Result<IoctlGate> IoctlGate::Create(SupervisorHooks hooks, SupervisorOptions options, KernelBoundary& boundary) {
  auto clients = Clients::Create(hooks, boundary);
  if (!clients) return std::unexpected(clients.error());
  return IoctlGate(std::move(hooks), options, boundary, std::move(*clients));
}

IoctlGate::Answer IoctlGate::Serve(const Call& call, const StillWaits& waits) {
  made_.reset();
  if (call.foreign) return Refuse(call, EPERM, "a request by a 32-bit program");
  const std::uint32_t number = NumberOf(call.request), bytes = BytesOf(call.request);
  if (!IsGuarded(number, bytes)) return Refuse(call, EINVAL, "a request of unknown size");
  std::array<std::byte, kMostArgumentBytes> buffer;
  const Argument argument = std::span(buffer).first(bytes);
  if (!ReadTenant(call.tid, call.address, argument)) {
    if (errno == EPERM) return Refuse(call, EPERM, "its memory cannot be read (kernel.yama.ptrace_scope)");
    return {.result = -EFAULT};
  }
  const Request request = Decode(number, argument);
  std::array<std::byte, sizeof(channel::abi::DisableChannels)> params;
  const std::size_t wanted = std::min<std::size_t>(ParamsWanted(request), request.params_bytes);
  const std::size_t read = ReadTenantUpTo(call.tid, request.params, std::span(params).first(wanted));
  return Act(call, request, Decide(request, std::span(params).first(read)), argument, waits);
}

IoctlGate::Answer IoctlGate::Act(const Call& call, const Request& request, const Decision& decision, Argument argument,
                                 const StillWaits& waits) {
  ProxiedCall proxied(call, request, argument, waits);
  switch (decision.action) {
    case Action::kPass:
      return Pass();
    case Action::kAnswer:
      if (!decision.why.empty()) Refuse(call, 0, WithNumber(request, decision.why));
      return proxied.WriteStatus(decision.status);
    case Action::kFail:
      return Refuse(call, decision.error, decision.why);
    case Action::kMemory:
      return Allocate(proxied, true);
    case Action::kObject:
      return Allocate(proxied, false);
    case Action::kClient:
      clients_.EndClosed(call);
      return Pass();
    case Action::kFree:
      return Free(proxied);
    case Action::kDup:
      return Dup(proxied);
    case Action::kOwnChannels:
      return StopOwnChannels(proxied, decision);
  }
  return Pass();
}

IoctlGate::Answer IoctlGate::Pass() {
  ++counts_.passed;
  return {.pass = true};
}

void IoctlGate::Done(bool given) {
  if (made_ && !given) {
    channel::abi::Free free{.root = made_->client, .parent = made_->parent, .object = made_->object, .status = 0};
    boundary_.Execute(made_->file.Get(), _IOWR(channel::abi::kIoctlType, channel::abi::kFree, channel::abi::Free),
                      &free);
    clients_.Freed(made_->client, made_->object);
  }
  made_.reset();
}

IoctlGate::Answer IoctlGate::Refuse(const Call& call, int error, std::string_view why) {
  ++counts_.refused;
  if (pid_t* const process = refusals_.Admit(call.tree, MonotonicNow())) {
    *process = static_cast<pid_t>(StatusField(call.tid, "Tgid"));
    hooks_.refused(*process, std::string(why));
  }
  return {.result = -error};
}

void IoctlGate::TellLeftOut(const Refusals::LeftOut& left_out) {
  hooks_.refused(left_out.process, "each of " + std::to_string(left_out.count) + " more requests of its program");
}

void IoctlGate::Check() {
  clients_.Check();
  for (const Refusals::LeftOut& left_out : refusals_.TakeDue(MonotonicNow())) TellLeftOut(left_out);
}

void IoctlGate::TreeEnded(std::uint64_t tree) {
  if (const auto left_out = refusals_.Forget(tree)) TellLeftOut(*left_out);
  clients_.TreeEnded(tree);
}

}  // namespace tessera::guard
