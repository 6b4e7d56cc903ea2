#include "mover/pool/slot_claims.h"

namespace tessera::mover {

void SlotClaims::Abandon(pid_t owner) {
  for (const Slot slot : table_.Abandon(owner)) pool_.GiveUp(slot);
}

void SlotClaims::LetGo(pid_t owner) {
  for (const Slot slot : table_.Abandon(owner, KeyTable::Entry::kShared)) pool_.GiveBack(slot);
}

void SlotClaims::Sweep(Nanos now) {
  const auto unclaimed = table_.Sweep(now);
  for (const Slot slot : unclaimed.ended) pool_.GiveBack(slot);
  for (const Slot slot : unclaimed.late) pool_.GiveUp(slot);
}

}  // namespace tessera::mover
