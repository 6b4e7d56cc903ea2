#include "mover/pool/lent_slots.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault.h"

namespace tessera::mover {

using wire::MoverMessage;
using wire::MoverType;

// The daemon reads in the table which ones these are, and keeps their descriptors.
void LentSlots::Lend(pid_t owner) {
  const auto lent = lending_.Lend(owner);
  tell_({.type = MoverType::kLent,
         .error = lent ? 0 : lent.error().code,
         .bytes = static_cast<std::uint64_t>(owner),
         .other = lent.value_or(0)});
  PassFault("mover.lent.sent");
}

void LentSlots::OnSlotFor(const MoverMessage& message, UniqueFd fd) {
  using Entry = KeyTable::Entry;
  const auto taken =
      Take({.key = message.other,
            .owner = static_cast<pid_t>(message.program),
            .marks = Entry::kGiven | Entry::kParked | Entry::kShared | static_cast<std::uint32_t>(message.marks),
            .domain = message.domain,
            .memory = message.bytes},
           std::move(fd));
  PassFault("mover.slot.lent");
  tell_({.type = MoverType::kSlotTaken, .error = taken ? 0 : taken.error().code, .bytes = message.bytes});
}

Result<void> LentSlots::Take(const KeyTable::Entry& entry, UniqueFd fd) {
  const auto has = lending_.Has(entry);
  if (!has) return std::unexpected(has.error());
  if (*has) return {};
  if (!fd || entry.key == 0 || entry.memory == 0) return Fail(EINVAL, "it is no slot with something of a program");
  HostMemory memory = MemoryFor(entry, std::move(fd));
  // Where the driver takes none of a program's, the daemon has to know before the other mover lets go of them.
  if (std::exchange(tried_, entry.owner) != entry.owner) {
    if (auto reached = gpu_.Reach(memory); !reached) return reached;
  }
  if (lending_.Add(entry, memory)) return {};
  gpu_.FreeHost(std::move(memory));
  return Fail(ENOSPC, "the pool is full of what programs have there");
}

// ---- ahead ----

// Mapped by now, if it was to come soon.
HostMemory LentSlots::MemoryFor(const KeyTable::Entry& entry, UniqueFd fd) {
  const auto soon = soon_.find(entry.memory);
  if (soon == soon_.end()) return {.fd = std::move(fd), .transit = entry.Has(KeyTable::Entry::kTransit)};
  unmapped_ -= soon->second.tried ? 0 : 1;
  return std::move(soon_.extract(soon).mapped().memory);
}

void LentSlots::OnReach(const MoverMessage& message, UniqueFd fd) {
  using Entry = KeyTable::Entry;
  const bool transit = (message.marks & Entry::kTransit) != 0;
  Soon soon = {.owner = static_cast<pid_t>(message.program), .memory = {.fd = std::move(fd), .transit = transit}};
  const bool is_new = soon.memory.fd && !soon_.contains(message.bytes);
  if (!is_new) return tell_({.type = MoverType::kReached, .bytes = message.bytes});
  soon_.emplace(message.bytes, std::move(soon));
  ++unmapped_;
}

// A slot that cannot be mapped is tried again when it is needed; the error comes then.
void LentSlots::GoOn(const std::function<bool(pid_t)>& moves) {
  std::erase_if(lends_, [&](pid_t owner) {
    const bool waits = moves(owner);
    if (!waits) Lend(owner);
    return !waits;
  });
  if (unmapped_ == 0) return;
  const auto next = std::ranges::find_if(soon_, [](const auto& each) { return !each.second.tried; });
  (void)gpu_.Reach(next->second.memory);
  next->second.tried = true;
  --unmapped_;
  tell_({.type = MoverType::kReached, .bytes = next->first});
  PassFault("mover.slot.reached");
}

void LentSlots::OnReachOver(pid_t owner) {
  for (auto each = soon_.begin(); each != soon_.end();) {
    auto& [number, soon] = *each;
    if (soon.owner != owner) {
      ++each;
      continue;
    }
    unmapped_ -= soon.tried ? 0 : 1;
    lending_.GiveUp(std::move(soon.memory));
    each = soon_.erase(each);
  }
}

}  // namespace tessera::mover
