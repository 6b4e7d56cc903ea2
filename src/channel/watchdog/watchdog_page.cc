#include "channel/watchdog/watchdog_page.h"

#include <algorithm>
#include <optional>

namespace tessera::channel {
namespace {

using ClientAndHandle = std::pair<std::uint32_t, std::uint32_t>;  // client, handle

// All stores release and all loads acquire, so that who reads a word of a later state sees its generation, too.
void Write(WatchdogSlot& slot, pid_t pid, std::uint32_t gpu, std::span<const ClientAndHandle> channels) {
  slot.pid.store(pid, std::memory_order_release);
  slot.gpu.store(gpu, std::memory_order_release);
  slot.channels.store(static_cast<std::uint32_t>(channels.size()), std::memory_order_release);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    slot.client[i].store(channels[i].first, std::memory_order_release);
    slot.channel[i].store(channels[i].second, std::memory_order_release);
  }
  slot.generation.fetch_add(1, std::memory_order_release);
}

struct Content {
  pid_t pid;
  std::uint32_t gpu;
  std::vector<ClientAndHandle> channels;
};

// Nothing if the slot is free, or becomes so meanwhile: then its process is thawed already, or noted elsewhere.
std::optional<Content> Read(const WatchdogSlot& slot) {
  const std::uint32_t generation = slot.generation.load(std::memory_order_acquire);
  if (generation % 2 == 0) return std::nullopt;
  Content content = {slot.pid.load(std::memory_order_acquire), slot.gpu.load(std::memory_order_acquire), {}};
  const std::uint32_t count = std::min(slot.channels.load(std::memory_order_acquire), WatchdogSlot::kMostChannels);
  for (std::uint32_t i = 0; i < count; ++i) {
    content.channels.emplace_back(slot.client[i].load(std::memory_order_acquire),
                                  slot.channel[i].load(std::memory_order_acquire));
  }
  if (slot.generation.load(std::memory_order_acquire) != generation) return std::nullopt;
  return content;
}

}  // namespace

std::map<std::pair<pid_t, std::uint32_t>, Target> ReadFrozen(const WatchdogPage& page) {
  std::map<std::pair<pid_t, std::uint32_t>, Target> frozen;
  for (const WatchdogSlot& slot : page.slots) {
    const auto content = Read(slot);
    if (!content) continue;
    Target& target = frozen[{content->pid, content->gpu}];
    target.pid = content->pid;
    for (const auto& [client, channel] : content->channels) {
      if (target.groups.empty() || target.groups.back().client != client) target.groups.push_back({.client = client});
      target.groups.back().channels.push_back(channel);
    }
  }
  return frozen;
}

void MarkUndone(WatchdogPage& page, pid_t pid, std::uint32_t gpu) {
  for (WatchdogSlot& slot : page.slots) {
    const std::uint32_t generation = slot.generation.load(std::memory_order_acquire);
    if (generation % 2 == 1 && slot.pid == pid && slot.gpu == gpu)
      slot.undone.store(generation, std::memory_order_release);
  }
}

FrozenNotes::FrozenNotes(WatchdogPage& page) : page_(page) {
  for (unsigned i = WatchdogPage::kSlots; i > 0; --i) free_.push_back(i - 1);
}

bool FrozenNotes::Note(pid_t pid, std::uint32_t gpu, const Target& target) {
  std::vector<ClientAndHandle> all;
  for (const Group& group : target.groups) {
    for (const std::uint32_t channel : group.channels) all.emplace_back(group.client, channel);
  }
  // A soft GPU's process has no channels, but a slot.
  const std::size_t needed =
      std::max<std::size_t>(1, (all.size() + WatchdogSlot::kMostChannels - 1) / WatchdogSlot::kMostChannels);
  if (free_.size() < needed) return false;
  std::vector<unsigned> slots;
  for (std::span<const ClientAndHandle> left = all; slots.size() < needed;) {
    const auto part = left.first(std::min<std::size_t>(left.size(), WatchdogSlot::kMostChannels));
    left = left.subspan(part.size());
    slots.push_back(free_.back());
    free_.pop_back();
    Write(page_.slots[slots.back()], pid, gpu, part);
  }
  // Only now, so that at no moment nothing is noted.
  std::vector<unsigned>& used = used_[{pid, gpu}];
  Release(used);
  used = std::move(slots);
  return true;
}

void FrozenNotes::Erase(pid_t pid, std::uint32_t gpu) {
  const auto found = used_.find({pid, gpu});
  if (found == used_.end()) return;
  Release(found->second);
  used_.erase(found);
}

bool FrozenNotes::Undone(pid_t pid, std::uint32_t gpu) const {
  const auto found = used_.find({pid, gpu});
  return found != used_.end() && std::ranges::any_of(found->second, [this](unsigned number) {
           const WatchdogSlot& slot = page_.slots[number];
           return slot.undone.load(std::memory_order_acquire) == slot.generation.load(std::memory_order_relaxed);
         });
}

void FrozenNotes::Release(const std::vector<unsigned>& slots) {
  for (const unsigned slot : slots) {
    page_.slots[slot].generation.fetch_add(1, std::memory_order_acq_rel);
    free_.push_back(slot);
  }
}

}  // namespace tessera::channel
