#include "guard/gate/ioctl_gate.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "guard/request/tenant_memory.h"

namespace tessera::guard {
namespace {

#ifndef PIDFD_THREAD
constexpr unsigned kPidfdThread = O_EXCL;  // Linux 6.9
#else
constexpr unsigned kPidfdThread = PIDFD_THREAD;
#endif

// With the number by which a maintainer finds the request in the driver's headers.
std::string Named(const Request& request, std::string_view why) {
  char number[24];
  const bool control = request.kind == Request::Kind::kControl;
  std::snprintf(number, sizeof number, control ? " (0x%x)" : " (class 0x%x)", control ? request.command : request.cls);
  return std::string(why) + number;
}

}  // namespace

Result<IoctlGate> IoctlGate::Create(SupervisorHooks hooks, SupervisorOptions options, KernelBoundary& boundary) {
  auto processes = Processes::Create();
  if (!processes) return std::unexpected(processes.error());
  return IoctlGate(std::move(hooks), options, boundary, std::move(*processes));
}

IoctlGate::Answer IoctlGate::Serve(const Call& call, const Waiting& waiting) {
  made_.reset();
  if (call.foreign) return Refuse(call, EPERM, "a request of a 32-bit program");
  const std::uint32_t number = NumberOf(call.request), bytes = BytesOf(call.request);
  if (!IsGuarded(number, bytes)) return Refuse(call, EINVAL, "a request of a size that is not known");
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
  return Act(call, request, Decide(request, std::span(params).first(read)), argument, waiting);
}

IoctlGate::Answer IoctlGate::Act(const Call& call, const Request& request, const Decision& decision, Argument argument,
                                 const Waiting& waiting) {
  switch (decision.action) {
    case Action::kPass:
      break;
    case Action::kAnswer:
      if (!decision.why.empty()) Refuse(call, 0, Named(request, decision.why));
      return WriteStatus(call, request, decision.status, waiting);
    case Action::kFail:
      return Refuse(call, decision.error, decision.why);
    case Action::kMemory:
      return Allocate(call, request, true, argument, waiting);
    case Action::kObject:
      return Allocate(call, request, false, argument, waiting);
    case Action::kClient:
      // RM may give it a number that a client of this program had whose file it closed: see that none is left.
      if (const auto* caller = Caller(call)) CheckClients(memory_.ClientsOf(caller->pid));
      break;
    case Action::kFree:
      return Free(call, request, argument, waiting);
    case Action::kDup:
      return Dup(call, request, argument, waiting);
    case Action::kOwnChannels:
      return StopOwnChannels(call, request, decision, argument, waiting);
  }
  ++counts_.passed;
  return {.pass = true};
}

void IoctlGate::Done(bool given) {
  if (made_ && !given) {
    channel::abi::Free free{.root = made_->client, .parent = made_->parent, .object = made_->object, .status = 0};
    boundary_.Execute(made_->file.Get(), _IOWR(channel::abi::kIoctlType, channel::abi::kFree, channel::abi::Free),
                      &free);
    Freed(made_->client, made_->object);
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
  CheckEnded();
  for (const Refusals::LeftOut& left_out : refusals_.TakeDue(MonotonicNow())) TellLeftOut(left_out);
}

IoctlGate::Answer IoctlGate::WriteStatus(const Call& call, const Request& request, std::uint32_t status,
                                         const Waiting& waiting) {
  // Asked right before: it may have been killed, and its number be another process's. Then nobody takes the answer.
  const bool written =
      waiting() && WriteTenant(call.tid, call.address + request.status_offset, std::as_bytes(std::span(&status, 1)));
  return {.result = written ? 0 : -EFAULT};
}

const Processes::Process* IoctlGate::Caller(const Call& call) {
  const auto* process = processes_.Of(call.tid, call.tree);
  if (!process && errno == EAGAIN) {
    CheckEnded();
    process = processes_.Of(call.tid, call.tree);
  }
  return process;
}

IoctlGate::Loan IoctlGate::Lend(const Call& call, const Waiting& waiting) {
  Loan loan;
  const auto* caller = Caller(call);
  if (!caller) {
    loan.error = errno;
    return loan;
  }
  loan.pid = caller->pid;
  loan.file = Borrow(caller->pidfd.Get(), call.fd);
  if (!loan.file && errno == ESRCH) {
    // The first thread of the process has ended, and its descriptors with it.
    const UniqueFd thread(static_cast<int>(syscall(SYS_pidfd_open, call.tid, kPidfdThread)));
    if (thread) loan.file = Borrow(thread.Get(), call.fd);
  }
  if (!loan.file) {
    loan.error = errno;
  } else if (!waiting()) {
    loan.error = ESRCH;  // whoever has this number now, it is not the caller
  } else if (const auto kind = KindOf(boundary_, loan.file.Get()); kind != KernelBoundary::File::kControl) {
    // As the driver and other files answer. Not "let it pass": the number may be another file's by then.
    loan.error = kind == KernelBoundary::File::kDevice ? EINVAL : ENOTTY;
  }
  return loan;
}

void IoctlGate::TreeEnded(std::uint64_t tree) {
  if (const auto left_out = refusals_.Forget(tree)) TellLeftOut(*left_out);
  std::vector<std::uint32_t> clients;
  for (const auto& [client, holder] : holders_) {
    if (holder.tree == tree) clients.push_back(client);
  }
  for (const std::uint32_t client : clients) End(client);
  for (const pid_t pid : processes_.OfTree(tree)) processes_.Forget(pid);
}

}  // namespace tessera::guard
