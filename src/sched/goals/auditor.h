#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"
#include "sched/goals/goals_config.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// Decides when a vGPU works while the others stand still, so that its speed alone is known. Only one does at a time,
// and all audits of a GPU take at most 1 % of its time; a vGPU of which nothing is known gets a little more at first.
// Not thread-safe; times never go backwards.
class Auditor {
 public:
  explicit Auditor(const GoalsConfig& config) : config_(config) {}

  void Add(VgpuId id);
  void Remove(VgpuId id, Nanos now);

  // The vGPU has work, and others have some too. Begins an audit if one is due, and says whether it did. `figures`: how
  // many are known of its speed alone.
  bool Begin(VgpuId id, std::uint64_t figures, Nanos now);
  // A burst of the vGPU under audit ended. `figures`: how many are known now.
  void BurstEnded(std::uint64_t figures, Nanos now);
  // Ends the audit if it is over. `busy`: a burst of the vGPU under audit is under way; if that brought no figure yet,
  // it may end.
  void Advance(bool busy, std::uint64_t figures, Nanos now);
  // Ends the audit, if there is one.
  void End(Nanos now);

  // Empty: there is no audit.
  std::optional<VgpuId> audited() const { return audited_; }
  // The others stand still since then; kNever without an audit.
  Nanos alone_since() const { return audited_ ? began_ + config_.freeze_time : kNever; }
  // When Advance must be called at the latest; kNever without an audit.
  Nanos NextDeadline() const;

 private:
  struct Subject {
    double credit = 0;  // ns of audits that it has before the GPU's budget pays
    Nanos last = 0;     // the end of its last audit
  };

  void Earn(Nanos now);

  const GoalsConfig config_;
  std::map<VgpuId, Subject> subjects_;
  double budget_ = 0;  // ns of audits that the GPU's time pays for
  Nanos earned_ = 0;   // budget_ was counted until then
  std::optional<VgpuId> audited_;
  std::uint64_t figures_then_ = 0;
  Nanos began_ = 0;
  Nanos over_at_ = 0;  // if no burst is under way then
};

}  // namespace tessera::sched
