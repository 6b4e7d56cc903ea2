#include "sched/idle/idle_program.h"

#include <algorithm>

namespace tessera::sched {
namespace {

constexpr Nanos kShortestPause = kSecond, kLongestPause = 16 * kSecond;
constexpr std::uint32_t kMostPatience = 64;

IdleVerdict JudgeAway(IdleRecord& record, const IdleFacts& facts, Nanos now) {
  record.since = kNever;
  if (!facts.by_itself || facts.returns || !facts.calls || now < record.resume_at) return IdleVerdict::kNothing;
  record.pause = std::clamp(2 * record.pause, kShortestPause, kLongestPause);
  record.resume_at = now + record.pause;
  record.tried = false;
  return IdleVerdict::kResume;
}

// It is on its GPUs again.
void EndAbsence(IdleRecord& record, Nanos limit, Nanos now) {
  if (record.left_at == kNever) return;
  record.patience = now - record.left_at < limit ? std::min(2 * record.patience, kMostPatience) : 1;
  record.left_at = kNever;
  record.resume_at = record.pause = 0;
}

}  // namespace

IdleVerdict Judge(IdleRecord& record, const IdleFacts& facts, Nanos limit, Nanos now) {
  if (facts.moves) return IdleVerdict::kNothing;
  if (facts.away) return JudgeAway(record, facts, now);
  EndAbsence(record, limit, now);
  const bool worked = !record.known || facts.done != record.done || facts.used != record.used || !facts.idle;
  record.known = true;
  record.done = facts.done;
  record.used = facts.used;
  if (worked) {
    record.tried = false;
    record.since = kNever;
  }
  if (!facts.idle) return IdleVerdict::kNothing;
  if (record.since == kNever) record.since = now;
  if (limit == 0 || record.tried || (now - record.since) / record.patience < limit) return IdleVerdict::kNothing;
  record.tried = true;
  record.left_at = now;
  return IdleVerdict::kSuspend;
}

void NoteRefusal(IdleRecord& record, Nanos now) {
  record.tried = false;
  record.left_at = kNever;
  record.since = now;
}

}  // namespace tessera::sched
