#include "server/channels/channel_table.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/process/process_start.h"
#include "channel/rm/driver_abi.h"
#include "server/model/process_facts.h"
#include "server/record/log.h"

namespace tessera::server {

ChannelTable::ChannelTable(channel::Control* control)
    : control_(control), started_(ProcessStart(getpid()).value_or(0)) {}

ChannelTable::Entry& ChannelTable::At(pid_t pid) {
  Entry& entry = processes_[pid];
  if (!entry.fd) {
    entry.fd.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    const auto start = ProcessStart(pid);
    entry.older = start && *start < started_;
  }
  return entry;
}

bool ChannelTable::Apply(pid_t pid, const channel::ObjectEvent& event, Source source) {
  return At(pid).objects.Apply(event, source);
}

void ChannelTable::Restore(pid_t pid, const std::vector<channel::ObjectEvent>& events) {
  At(pid).objects.Restore(events);
}

bool ChannelTable::Alive(pid_t pid) const {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || !found->second.fd) return false;
  pollfd end{.fd = found->second.fd.Get(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, 0) == 0;
}

bool ChannelTable::IsOlder(pid_t pid) { return At(pid).older; }

std::vector<channel::Group> ChannelTable::OwnGroups(pid_t pid, std::uint32_t gpu) const {
  return control_ ? Objects(pid).Groups(control_->DeviceInstance(gpu)) : std::vector<channel::Group>();
}

std::vector<channel::Group> ChannelTable::Groups(pid_t pid, std::uint32_t gpu) const {
  auto groups = OwnGroups(pid, gpu);
  for (const pid_t client : ClientsOf(pid)) AddClient(client, gpu, groups);
  return groups;
}

std::vector<pid_t> ChannelTable::ClientsOf(pid_t server) const {
  std::vector<pid_t> clients;
  for (const auto& [pid, client] : spaces_) {
    if (ServerOf(client.space) == server) clients.push_back(pid);
  }
  return clients;
}

// The slice is the server's, who has the group: channels of clients are only taken off and put back.
void ChannelTable::AddClient(pid_t client, std::uint32_t gpu, std::vector<channel::Group>& groups) const {
  for (channel::Group& group : OwnGroups(client, gpu)) {
    group.fd = -1;
    groups.push_back(std::move(group));
  }
}

void ChannelTable::EnterSpace(pid_t client, std::uint32_t space, Nanos now) {
  spaces_[client] = {space};
  starts_[space].Begin(now);
}

bool ChannelTable::ClientWorks(pid_t client, Nanos now) {
  const auto found = spaces_.find(client);
  if (found == spaces_.end() || !std::exchange(found->second.starts, false)) return false;
  const std::uint32_t space = found->second.space;
  const bool others =
      std::ranges::any_of(spaces_, [&](const auto& each) { return each.second.starts && each.second.space == space; });
  if (!others) starts_[space].End(now);
  return true;
}

void ChannelTable::LeaveSpace(pid_t client, Nanos now) {
  ClientWorks(client, now);
  spaces_.erase(client);
}

bool ChannelTable::Spared(pid_t server, Nanos now) const {
  return std::ranges::any_of(
      starts_, [&](const auto& each) { return each.second.Spares(now) && ServerOf(each.first) == server; });
}

void ChannelTable::SetServer(std::uint32_t space, pid_t server) {
  if (server == 0) {
    servers_.erase(space);
  } else {
    servers_[space] = server;
  }
}

pid_t ChannelTable::ServerOf(std::uint32_t space) const {
  const auto found = servers_.find(space);
  return found == servers_.end() ? 0 : found->second;
}

pid_t ChannelTable::ServerOfClient(pid_t client) const {
  const auto found = spaces_.find(client);
  return found == spaces_.end() ? 0 : ServerOf(found->second.space);
}

channel::Target ChannelTable::TargetOn(pid_t pid, std::uint32_t gpu) {
  const Entry& entry = At(pid);
  channel::Target target = entry.objects.TargetOn(*control_, gpu, pid, entry.fd.Get());
  for (const pid_t client : ClientsOf(pid)) {
    if (Verify(client)) AddClient(client, gpu, target.groups);
  }
  return target;
}

const channel::ObjectTable& ChannelTable::Objects(pid_t pid) const {
  static const channel::ObjectTable kNone;
  const auto found = processes_.find(pid);
  return found == processes_.end() ? kNone : found->second.objects.Table();
}

bool ChannelTable::Verify(pid_t pid) {
  if (!control_) return false;
  Entry& entry = At(pid);
  const bool refused = entry.objects.Refused();
  const bool verified = entry.objects.Verify(*control_, pid, entry.fd.Get());
  if (entry.objects.Refused() && !refused)
    log::WarnOf(OwnerOf(pid).value_or(kNoUser), "process {} claims channels that are not its own; they are not steered",
                pid);
  return verified;
}

bool ChannelTable::IsClient(pid_t pid, std::uint32_t gpu) const {
  return InSpace(pid) || std::ranges::any_of(OwnGroups(pid, gpu), &channel::Group::borrowed);
}

bool ChannelTable::Computes(pid_t pid, std::uint32_t gpu) {
  if (!control_ || IsClient(pid, gpu)) return false;
  if (control_->KnowsProcesses()) {
    // Channels that it was once found to have stay its own until it ends: news of their end may come late.
    // A process that has none gets no entry: somebody may ask about any pid.
    const auto found = processes_.find(pid);
    if (found != processes_.end() && found->second.found_on.contains(gpu)) return true;
    if (!control_->Slice(gpu, {.pid = pid})) return false;
    At(pid).found_on.insert(gpu);
    return true;
  }
  return std::ranges::any_of(OwnGroups(pid, gpu), channel::IsCompute) && Verify(pid);
}

bool ChannelTable::IsDevice(std::uint32_t gpu, std::uint32_t instance) const {
  return control_ && instance != channel::abi::kNoGpu && control_->DeviceInstance(gpu) == instance;
}

}  // namespace tessera::server
