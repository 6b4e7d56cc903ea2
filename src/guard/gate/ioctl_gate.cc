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

Result<IoctlGate> IoctlGate::Create(SupervisorHooks hooks, SupervisorOptions options, KernelBoundary& boundary,
                                    TreeRecord& record) {
  auto clients = Clients::Create(hooks, boundary, record);
  if (!clients) return std::unexpected(clients.error());
  return IoctlGate(std::move(hooks), options, boundary, record, std::move(*clients));
}

// Once: what is checked is what is made.
bool IoctlGate::ReadArgument(const Call& call, std::uint32_t bytes) {
  hand_.copied = hand_.params_bytes = 0;
  hand_.argument_bytes = bytes;
  if (!ReadTenant(call.tid, call.address, std::span(hand_.argument_before).first(bytes))) return false;
  hand_.argument = hand_.argument_before;
  return true;
}

IoctlGate::Answer IoctlGate::Serve(const Call& call, const StillWaits& waits) {
  made_.reset();
  if (call.foreign) return Refuse(call, EPERM, "a request by a 32-bit program");
  const std::uint32_t number = NumberOf(call.request), bytes = BytesOf(call.request);
  if (IsDisplay(number)) return ServeDisplay(call, waits);
  if (!IsGuarded(number, bytes)) return ServeUnknown(call, waits);
  const auto argument = std::span(hand_.argument_before).first(bytes);
  if (!ProxiedCall::WasMade(hand_, Decode(number, argument))) hand_.stage = CallInHand::Stage::kReceived;
  if (hand_.stage == CallInHand::Stage::kReceived && !ReadArgument(call, bytes)) {
    if (errno == EPERM) return Refuse(call, EPERM, "its memory cannot be read (kernel.yama.ptrace_scope)");
    return {.result = -EFAULT};
  }
  const Request request = Decode(number, argument);
  std::array<std::byte, sizeof(channel::abi::DisableChannels)> params;
  const std::size_t wanted = std::min<std::size_t>(ParamsWanted(request), request.params_bytes);
  const std::size_t read = ReadTenantUpTo(call.tid, request.params, std::span(params).first(wanted));
  return Act(call, request, Decide(request, std::span(params).first(read)), waits);
}

// A size that this code does not know. A driver that does not know it either refuses it itself. A newer driver may have
// grown a request at its end: what its known part says not to do is not done, and all else passes uncounted, as a
// program must not break because its driver is new. The measurement finds the memory.
IoctlGate::Answer IoctlGate::ServeUnknown(const Call& call, const StillWaits& waits) {
  const std::uint32_t number = NumberOf(call.request), bytes = BytesOf(call.request), known = MostBytesOf(number);
  if (!IsOfDriver(call.request)) return Pass();  // another filter than ours holds more calls
  if (number == kWrapped) return Refuse(call, EINVAL, "a request inside another");
  if (bytes > known) {
    if (!ReadArgument(call, known)) return {.result = -EFAULT};
    const Request request = Decode(number, std::span(hand_.argument).first(known));
    std::array<std::byte, 1> flag{};
    const std::size_t wanted = std::min<std::size_t>(ParamsWanted(request), flag.size());
    const std::size_t read = ReadTenantUpTo(call.tid, request.params, std::span(flag).first(wanted));
    const Decision decision = Decide(request, std::span(flag).first(read));
    if (decision.action == Action::kAnswer || decision.action == Action::kFail)
      return Act(call, request, decision, waits);
  }
  ++counts_.unknown;
  if (unknown_.size() < kMostUnknown && unknown_.emplace(number, bytes).second) {
    char what[64];
    std::snprintf(what, sizeof what, "request 0x%x of %u bytes", number, bytes);
    hooks_.unknown(static_cast<pid_t>(StatusField(call.tid, "Tgid")), what);
  }
  return Pass();
}

IoctlGate::Answer IoctlGate::ServeDisplay(const Call& call, const StillWaits& waits) {
  const Clients::Loan loan = clients_.Borrow(call, waits);
  if (!loan.file) return {.result = -loan.error};
  if (KindOf(boundary_, loan.file.Get()) != KernelBoundary::File::kDisplay) return Pass();
  return Refuse(call, EPERM, "GPU memory by the display driver (/dev/dri)");
}

IoctlGate::Answer IoctlGate::Act(const Call& call, const Request& request, const Decision& decision,
                                 const StillWaits& waits) {
  ProxiedCall proxied(call, request, hand_, waits);
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
