#include "sched/residency/residency_plan.h"

#include <algorithm>
#include <utility>

namespace tessera::sched {

void Apply(const ResidencyAction& action, Nanos now, bool file, ProcessResidence& process) {
  using enum ResidencyActionKind;
  switch (action.kind) {
    case kStop:
      process.stopped = true;
      process.thawed = process.alone = process.keeps_peers = process.still = false;
      break;
    case kRun:
      process.stopped = process.thawed = process.alone = process.keeps_peers = false;
      break;
    case kThaw:
      process.thawed = true;
      process.alone = false;
      process.keeps_peers = process.away && process.peers;
      break;
    case kFreePeers:
      process.alone = true;
      break;
    case kMoveOut:
      process.moving = Moving::kOut;
      process.ordered += action.bytes;
      process.push = 0;
      process.parked = false;
      process.may_be_in_file = file;
      break;
    case kSqueeze:
      process.moving = Moving::kOut;
      process.parked = false;
      process.ordered += action.bytes;
      process.may_be_in_file = file;
      break;
    case kMoveIn:
      process.room += action.bytes;
      process.moving = Moving::kIn;
      process.parked = false;
      process.ordered += action.bytes;
      process.coming_holes += action.holes == kAnyHoles ? 0 : action.holes;
      process.may_be_in_file = false;
      break;
    case kSettle:
      process.moving = Moving::kSettling;
      process.parked = false;
      process.may_be_in_file = false;
      break;
    case kPark:
      process.moving = Moving::kParking;
      break;
    case kRest:
      process.moving = Moving::kOut;
      process.may_be_in_file = true;
      break;
    case kGrant:
      process.room += action.bytes;
      process.credit += action.bytes;
      process.wanted = 0;
      process.granted_at = now;
      break;
    case kRevokeCredit:
      process.room -= std::exchange(process.credit, 0);
      break;
    case kDropWish:
      process.wanted = 0;
      break;
    case kEndPush:
      process.push = 0;
      break;
    case kGrowPool:
    case kPreparePool:
      break;
  }
}

void Apply(const ResidencyAction& action, PoolResidence& pool) {
  if (action.kind == ResidencyActionKind::kGrowPool) pool.wanted = action.bytes;
  if (action.kind != ResidencyActionKind::kPreparePool) return;
  pool.prepared = action.bytes;
  pool.wanted = std::min(pool.wanted, action.bytes);
}

}  // namespace tessera::sched
