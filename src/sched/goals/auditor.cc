#include "sched/goals/auditor.h"

#include <algorithm>

namespace tessera::sched {
namespace {

constexpr Nanos kLength = 50 * kMillisecond;  // of an audit, at most, if no burst is under way at its end
constexpr Nanos kEnough = 20 * kMillisecond;  // of an audit that brought a figure
constexpr Nanos kLongest = kSecond;           // whatever is under way
constexpr double kMostSaved = 100 * kMillisecond;
constexpr std::uint64_t kKnown = 10;  // figures; with fewer, each chance is taken
constexpr Nanos kInterval = 10 * kSecond;

}  // namespace

void Auditor::Add(VgpuId id) { subjects_[id] = {.credit = static_cast<double>(config_.first_audits)}; }

void Auditor::Remove(VgpuId id, Nanos now) {
  if (audited_ == id) End(now);
  subjects_.erase(id);
}

bool Auditor::Begin(VgpuId id, std::uint64_t figures, Nanos now) {
  const auto found = subjects_.find(id);
  if (audited_ || found == subjects_.end()) return false;
  Earn(now);
  const Subject& subject = found->second;
  if (figures >= kKnown && now - subject.last < kInterval) return false;
  const bool own = figures < kKnown && subject.credit > 0;
  if (!own && budget_ < static_cast<double>(kLength)) return false;
  audited_ = id;
  figures_then_ = figures;
  began_ = now;
  over_at_ = now + kLength;
  return true;
}

void Auditor::BurstEnded(std::uint64_t figures, Nanos now) {
  if (!audited_) return;
  if (figures > figures_then_ && now - began_ >= kEnough) End(now);
}

void Auditor::Advance(bool busy, std::uint64_t figures, Nanos now) {
  if (!audited_ || now < over_at_) return;
  if (!busy || figures > figures_then_ || now - began_ >= kLongest) return End(now);
  over_at_ = began_ + kLongest;
}

void Auditor::End(Nanos now) {
  if (!audited_) return;
  Earn(now);
  Subject& subject = subjects_.at(*audited_);
  const auto cost = static_cast<double>(now - began_);
  const double own = std::clamp(subject.credit, 0.0, cost);
  subject.credit -= own;
  budget_ -= cost - own;
  subject.last = now;
  audited_.reset();
}

Nanos Auditor::NextDeadline() const {
  if (!audited_) return kNever;
  return over_at_;
}

void Auditor::Earn(Nanos now) {
  const auto elapsed = static_cast<double>(std::max<Nanos>(0, now - earned_));
  budget_ = std::min(kMostSaved, budget_ + config_.audit_part * elapsed);
  earned_ = std::max(earned_, now);
}

}  // namespace tessera::sched
