#include "channel/control/freeze_account.h"

#include <algorithm>

namespace tessera::channel {
namespace {

// Leaves the channels for which `keep` holds, and the groups that have any.
template <typename Keep>
Target Filtered(Target target, Keep keep) {
  for (Group& group : target.groups) {
    std::erase_if(group.channels, [&](std::uint32_t handle) { return !keep(group, handle); });
  }
  std::erase_if(target.groups, [](const Group& group) { return group.channels.empty(); });
  return target;
}

template <typename Visit>
void ForEachChannel(const std::vector<Group>& groups, Visit visit) {
  for (const Group& group : groups) {
    for (const std::uint32_t handle : group.channels) visit(std::pair(group.client, handle));
  }
}

}  // namespace

// Where groups name the channels, they say what a freeze reaches: one call does for all.
Reach FreezeAccount::CallReach(Reach wished) const { return control_.KnowsProcesses() ? wished : Reach::kAll; }

// The channels to take off the GPU, or to put back; none: there is nothing to do.
std::optional<Target> FreezeAccount::Difference(std::uint32_t gpu, const Wish& wish, bool freeze) {
  const Entry& entry = At(wish.target.pid, gpu);
  if (control_.KnowsProcesses()) {
    if (wish.reach.has_value() != freeze || wish.reach == entry.reach) return {};
    return wish.target;
  }
  Target difference = Filtered(wish.target, [&](const Group& group, std::uint32_t handle) {
    const bool wanted_off = wish.reach && (*wish.reach == Reach::kAll || IsCompute(group));
    return wanted_off == freeze && entry.off.contains({group.client, handle}) != freeze;
  });
  if (difference.groups.empty()) return {};
  return difference;
}

std::vector<FreezeAccount::Outcome> FreezeAccount::Settle(std::uint32_t gpu, std::span<const Wish> wishes) {
  struct Step {
    bool freeze;
    Reach reach;
  };
  std::vector<Outcome> outcomes(wishes.size());
  for (const auto [freeze, reach] : {Step{true, Reach::kAll}, Step{true, Reach::kCompute}, Step{false, Reach::kAll}}) {
    std::vector<Target> targets;
    std::vector<std::size_t> whose;  // wish of each target
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      const std::optional<Reach> wished = wishes[i].reach;
      if (freeze && (!wished || CallReach(*wished) != reach)) continue;
      auto difference = Difference(gpu, wishes[i], freeze);
      if (!difference) continue;
      if (auto& groups = difference->groups; !freeze && groups.size() > 1)
        std::ranges::rotate(groups, groups.begin() + static_cast<std::ptrdiff_t>(thaws_ % groups.size()));
      targets.push_back(std::move(*difference));
      whose.push_back(i);
    }
    if (targets.empty()) continue;
    const Nanos begin = MonotonicNow();
    thaws_ += freeze ? 0 : 1;
    const auto done = freeze ? control_.Freeze(gpu, targets, reach) : PutBack(gpu, targets);
    const Nanos end = MonotonicNow();
    on_call_(freeze, end - begin, end);
    // Some of it may be off: all of it runs again, and each process is tried by itself.
    if (!done && freeze) (void)control_.Thaw(gpu, targets, Reach::kAll);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      Outcome& outcome = outcomes[whose[i]];
      if (!done && targets.size() > 1) {
        outcome = std::move(Settle(gpu, wishes.subspan(whose[i], 1)).front());
        continue;
      }
      outcome.took = end - begin;
      if (!done) outcome.done = done;
      if (!done) continue;
      outcome.froze |= freeze;
      Note(gpu, targets[i], freeze, reach);
    }
  }
  return outcomes;
}

void FreezeAccount::Note(std::uint32_t gpu, const Target& target, bool freeze, Reach reach) {
  Entry& entry = At(target.pid, gpu);
  entry.reach = freeze ? std::optional(reach) : std::nullopt;
  ForEachChannel(target.groups, [&](const Channel& channel) {
    freeze ? (void)entry.off.insert(channel) : (void)entry.off.erase(channel);
  });
}

Result<void> FreezeAccount::PutBack(std::uint32_t gpu, std::span<const Target> targets) {
  auto thawed = control_.Thaw(gpu, targets, Reach::kAll);
  std::vector<Target> again;
  for (const Target& target : targets) {
    const std::set<Channel>& before = At(target.pid, gpu).off_before;
    Target twice = Filtered(
        target, [&](const Group& group, std::uint32_t handle) { return before.contains({group.client, handle}); });
    if (!twice.groups.empty()) again.push_back(std::move(twice));
  }
  if (!thawed || again.empty()) return thawed;
  thawed = control_.Thaw(gpu, again, Reach::kAll);
  if (!thawed) return thawed;
  for (const Target& target : again) {
    std::set<Channel>& before = At(target.pid, gpu).off_before;
    ForEachChannel(target.groups, [&](const Channel& channel) { before.erase(channel); });
  }
  return {};
}

bool FreezeAccount::AnyOff(pid_t pid, std::uint32_t gpu) const {
  const auto process = processes_.find(pid);
  if (process == processes_.end()) return false;
  const auto entry = process->second.find(gpu);
  return entry != process->second.end() && (!entry->second.off.empty() || entry->second.reach);
}

void FreezeAccount::KeepOnly(pid_t pid, std::uint32_t gpu, const std::vector<Group>& groups) {
  std::set<Channel> existing;
  ForEachChannel(groups, [&](const Channel& channel) { existing.insert(channel); });
  Entry& entry = At(pid, gpu);
  for (std::set<Channel>* off : {&entry.off, &entry.off_before})
    std::erase_if(*off, [&](const Channel& channel) { return !existing.contains(channel); });
}

void FreezeAccount::TakeOver(std::uint32_t gpu, const Target& target) {
  ForEachChannel(target.groups, [&](const Channel& channel) { At(target.pid, gpu).off.insert(channel); });
}

void FreezeAccount::MayBeOff(std::uint32_t gpu, const Target& target) {
  ForEachChannel(target.groups, [&](const Channel& channel) { At(target.pid, gpu).off_before.insert(channel); });
}

void FreezeAccount::Undone(std::uint32_t gpu, const Target& target) {
  (void)PutBack(gpu, {&target, 1});
  Entry& entry = At(target.pid, gpu);
  entry.off.clear();
  entry.reach.reset();
}

}  // namespace tessera::channel
