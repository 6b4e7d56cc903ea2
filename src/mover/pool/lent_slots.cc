#include "mover/pool/lent_slots.h"

#include <cerrno>
#include <utility>

#include "base/fault.h"

namespace tessera::mover {

using wire::MoverMessage;
using wire::MoverType;

// The daemon reads in the table which ones these are, and keeps their descriptors.
void LentSlots::OnLend(pid_t owner) {
  const auto lent = lending_.Lend(owner);
  tell_({.type = MoverType::kLent,
         .error = lent ? 0 : lent.error().code,
         .bytes = static_cast<std::uint64_t>(owner),
         .other = lent.value_or(0)});
  PassFault("mover.lent.sent");
}

void LentSlots::OnSlotFor(const MoverMessage& message, UniqueFd fd) {
  using Entry = KeyTable::Entry;
  const auto taken = Take({.key = message.other,
                           .owner = static_cast<pid_t>(message.program),
                           .marks = Entry::kGiven | Entry::kParked | Entry::kShared |
                                    (static_cast<std::uint32_t>(message.marks) & Entry::kTransit),
                           .domain = message.domain,
                           .memory = message.bytes},
                          std::move(fd));
  PassFault("mover.slot.lent");
  tell_({.type = MoverType::kSlotTaken, .error = taken ? 0 : taken.error().code, .bytes = message.bytes});
}

Result<void> LentSlots::Take(const KeyTable::Entry& entry, UniqueFd fd) {
  if (transit_.Adopt(entry)) return {};
  const auto has = lending_.Has(entry);
  if (!has) return std::unexpected(has.error());
  if (*has) return {};
  if (!fd || entry.key == 0 || entry.memory == 0) return Fail(EINVAL, "it is no slot with something of a program");
  HostMemory memory = {.fd = std::move(fd), .transit = entry.Has(KeyTable::Entry::kTransit)};
  // Where the driver takes none of a program's, the daemon has to know before the other mover lets go of them.
  if (std::exchange(tried_, entry.owner) != entry.owner) {
    if (auto reached = gpu_.Reach(memory); !reached) return reached;
  }
  if (lending_.Add(entry, memory)) return {};
  gpu_.FreeHost(std::move(memory));
  return Fail(ENOSPC, "the pool is full of what programs have there");
}

}  // namespace tessera::mover
