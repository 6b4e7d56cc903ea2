#include "mover/pool/slot_claims.h"

#include <utility>

namespace tessera::mover {

// A shared slot never goes to another program, and may come back by the other pool: its place in the table is cleared.
void SlotClaims::Abandon(pid_t owner) {
  for (const Slot slot : table_.Abandon(owner))
    std::as_const(table_)[slot].Has(KeyTable::Entry::kShared) ? pool_.GiveBack(slot) : pool_.GiveUp(slot);
}

void SlotClaims::LetGo(std::uint64_t number) {
  if (const auto slot = table_.LetGo(number)) pool_.GiveBack(*slot);
}

void SlotClaims::Sweep(Nanos now) {
  const auto unclaimed = table_.Sweep(now);
  for (const Slot slot : unclaimed.ended) pool_.GiveBack(slot);
  for (const Slot slot : unclaimed.late) pool_.GiveUp(slot);
}

}  // namespace tessera::mover
