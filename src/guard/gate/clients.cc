#include "guard/gate/clients.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/process/process_start.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

#ifndef PIDFD_THREAD
constexpr unsigned kPidfdThread = O_EXCL;  // Linux 6.9
#else
constexpr unsigned kPidfdThread = PIDFD_THREAD;
#endif

}  // namespace

Result<Clients> Clients::Create(SupervisorHooks hooks, KernelBoundary& boundary, TreeRecord& record) {
  auto processes = Processes::Create(hooks.processes);
  if (!processes) return std::unexpected(processes.error());
  Clients clients(std::move(hooks), boundary, record, std::move(*processes));
  clients.Restore();
  return clients;
}

// What they pay is the owner's business; those that ended meanwhile are found by the first Check.
void Clients::Restore() {
  record_.Restore(objects_);
  for (const TreeRecord::Client& client : record_.Clients()) {
    holders_[client.client] = {.file = {.pid = client.holder, .fd = client.fd}, .tree = kRestoredTree};
    if (client.Lives() && !processes_.Of(client.holder, kRestoredTree))
      holders_[client.client].unlisted = errno != ESRCH;
    suspects_.push_back(client.client);
  }
}

void Clients::SetHolder(std::uint32_t client, pid_t owner, const Holder& holder) {
  holders_[client] = holder;
  record_.Put({.client = client,
               .process = owner,
               .holder = holder.file.pid,
               .fd = holder.file.fd,
               .start = ProcessStart(owner).value_or(0)});
}

const Processes::Process* Clients::Caller(const GateCall& call) {
  const auto* process = processes_.Of(call.tid, call.tree);
  if (!process && errno == EAGAIN) {
    Check();
    process = processes_.Of(call.tid, call.tree);
  }
  return process;
}

Clients::Loan Clients::Borrow(const GateCall& call, const StillWaits& waits) {
  Loan loan;
  const auto* caller = Caller(call);
  if (!caller) {
    loan.error = errno;
    return loan;
  }
  loan.pid = caller->pid;
  loan.file = guard::Borrow(caller->pidfd.Get(), call.fd);
  if (!loan.file && errno == ESRCH) {
    // The first thread of the process has ended, and its descriptors with it.
    const UniqueFd thread(static_cast<int>(syscall(SYS_pidfd_open, call.tid, kPidfdThread)));
    if (thread) loan.file = guard::Borrow(thread.Get(), call.fd);
  }
  if (!loan.file) {
    loan.error = errno;
  } else if (!waits()) {
    loan.error = ESRCH;  // whoever has this number now, it is not the caller
  } else if (const auto kind = KindOf(boundary_, loan.file.Get()); kind != KernelBoundary::File::kControl) {
    // As the driver and other files answer. Not "let it pass": the number may be another file's by then.
    loan.error = kind == KernelBoundary::File::kDevice ? EINVAL : ENOTTY;
  }
  return loan;
}

std::optional<pid_t> Clients::OwnerOf(const Loan& loan, const GateCall& call, std::uint32_t client) {
  if (!record_.Reserve()) return {};
  const auto owner = objects_.ProcessOf(client);
  if (owner == loan.pid) return owner;
  if (client == 0 || !Answers(boundary_, loan.file.Get(), client)) return {};
  if (owner) {
    // A child on its parent's file; or RM has given out the number of a client again whose file is gone.
    // If that cannot be determined, its account does not change.
    if (HolderAnswers(client).value_or(true)) return owner;
    End(client);
  }
  if (objects_.ClientsOf(loan.pid).size() >= kMostPerProcess) return {};
  Apply(objects_.SetClient(client, loan.pid));
  SetHolder(client, loan.pid, {.file = {.pid = loan.pid, .fd = call.fd}, .tree = call.tree});
  hooks_.object(loan.pid, {.kind = channel::ObjectEvent::Kind::kAlloc,
                           .fd = call.fd,
                           .client = client,
                           .object = client,
                           .cls = abi::kRootClient});
  return loan.pid;
}

bool Clients::IsOwn(std::uint32_t client, pid_t pid) {
  return objects_.ProcessOf(client) == pid && HolderAnswers(client).value_or(false);
}

std::optional<bool> Clients::HolderAnswers(std::uint32_t client) {
  const auto holder = holders_.find(client);
  if (holder == holders_.end()) return false;
  const auto* process = processes_.Find(holder->second.file.pid);
  if (!process) return holder->second.unlisted ? std::optional<bool>() : false;
  const UniqueFd file = guard::Borrow(process->pidfd.Get(), holder->second.file.fd);
  if (!file && IsShortage(errno)) return {};
  return file && KindOf(boundary_, file.Get()) == KernelBoundary::File::kControl &&
         Answers(boundary_, file.Get(), client);
}

// Ends the clients whose file nobody holds any more, if that can be told; else they are suspects.
void Clients::CheckClients(std::vector<std::uint32_t> clients) {
  std::erase_if(clients, [&](std::uint32_t client) {
    return !holders_.contains(client) || HolderAnswers(client).value_or(false);
  });
  if (clients.empty()) return;
  last_search_ = MonotonicNow();
  // The file may have gone on to a forked child, or to another number.
  const HeldFiles found = FindControlFiles(boundary_);
  bool complete = found.complete;
  for (const HeldFile& held : found.files) {
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, held.pid, 0)));
    const UniqueFd file = pidfd ? guard::Borrow(pidfd.Get(), held.fd) : UniqueFd();
    if (!file && IsShortage(errno)) complete = false;
    if (!file || KindOf(boundary_, file.Get()) != KernelBoundary::File::kControl) continue;
    std::erase_if(clients, [&](std::uint32_t client) {
      const std::uint64_t tree = holders_.at(client).tree;
      if (!Answers(boundary_, file.Get(), client)) return false;
      if (!processes_.Of(held.pid, tree)) {
        if (errno != ESRCH) complete = false;  // it is there, and there is no room for it in the table
        return false;
      }
      Apply(objects_.SetClient(client, held.pid));
      SetHolder(client, held.pid, {.file = held, .tree = tree});
      return true;
    });
    if (clients.empty()) return;
  }
  if (complete) {
    for (const std::uint32_t client : clients) End(client);
    return;
  }
  // Somebody may hold their files where there was no looking, and their memory with them: the next search will tell.
  suspects_.insert(suspects_.end(), clients.begin(), clients.end());
  std::ranges::sort(suspects_);
  const auto twice = std::ranges::unique(suspects_);
  suspects_.erase(twice.begin(), twice.end());
}

void Clients::TakeEnded() {
  for (const pid_t pid : processes_.TakeEnded()) {
    for (const std::uint32_t client : objects_.ClientsOf(pid)) suspects_.push_back(client);
  }
}

void Clients::Check() {
  TakeEnded();
  if (!suspects_.empty() && MonotonicNow() >= last_search_ + kSearchInterval)
    CheckClients(std::exchange(suspects_, {}));
}

void Clients::EndClosed(const GateCall& call) {
  if (const auto* caller = Caller(call)) CheckClients(objects_.ClientsOf(caller->pid));
}

void Clients::TreeEnded(std::uint64_t tree) {
  std::vector<std::uint32_t> clients;
  for (const auto& [client, holder] : holders_) {
    if (holder.tree == tree) clients.push_back(client);
  }
  for (const std::uint32_t client : clients) End(client);
  for (const pid_t pid : processes_.OfTree(tree)) processes_.Forget(pid);
}

void Clients::End(std::uint32_t client) {
  if (const auto pid = objects_.ProcessOf(client)) {
    hooks_.object(*pid, {.kind = channel::ObjectEvent::Kind::kFree, .client = client, .object = client});
  }
  Apply(objects_.Free(client, client));
  holders_.erase(client);
  record_.EraseClient(client);
}

std::optional<bool> Clients::Charge(pid_t pid, std::uint32_t device, std::uint64_t bytes) {
  if (bytes == 0) return true;
  if (bytes > kMostMemoryBytes) return false;
  if (const auto charged = hooks_.charge(pid, device, bytes); charged != false) return charged;
  // Files that were closed without a free are noticed only by a search.
  TakeEnded();
  const Nanos now = MonotonicNow();
  if (suspects_.empty() && now < last_check_ + kCheckInterval) return false;
  last_check_ = now;
  suspects_.clear();
  std::vector<std::uint32_t> clients;
  for (const auto& [client, holder] : holders_) clients.push_back(client);
  const std::size_t before = objects_.Memories();
  CheckClients(std::move(clients));
  if (objects_.Memories() == before) return false;
  return hooks_.charge(pid, device, bytes);
}

void Clients::GiveBack(pid_t pid, std::uint32_t device, std::uint64_t bytes) {
  if (bytes > 0) hooks_.give_back(pid, device, bytes);
}

void Clients::Add(const Request& request, MemoryObjects::Handle object, std::uint64_t bytes, std::uint32_t device,
                  const channel::ObjectEvent* told) {
  Apply(objects_.Add(request.client, request.parent, object, bytes, device));
  if (!told) return;
  record_.Tell(request.client, object, {.fd = told->fd, .cls = told->cls, .detail = told->detail});
  if (const auto owner = objects_.ProcessOf(request.client)) hooks_.object(*owner, *told);
}

void Clients::Dup(const Request& request, MemoryObjects::Handle object) {
  Apply(objects_.Dup(request.client, request.parent, object, request.source_client, request.source_object));
}

void Clients::Freed(std::uint32_t client, std::uint32_t object) {
  if (object == client) return End(client);
  if (const auto pid = objects_.ProcessOf(client); pid && !objects_.HoldsMemory(client, object)) {
    hooks_.object(*pid, {.kind = channel::ObjectEvent::Kind::kFree, .client = client, .object = object});
  }
  Apply(objects_.Free(client, object));
}

void Clients::Apply(const MemoryObjects::Changes& changes) {
  for (const MemoryObjects::Change& change : changes) {
    if (!change.charge) {
      hooks_.give_back(change.process, change.device, change.bytes);
    } else if (!hooks_.charge(change.process, change.device, change.bytes).value_or(false)) {
      objects_.Unpaid(change.memory);  // it is over its limit by this much, and there is no way to take it back
    }
  }
}

}  // namespace tessera::guard
