#include "server/gpu/quota_keeper.h"

#include <algorithm>
#include <variant>

namespace tessera::server {
namespace {

// A speed goal is a request.
QuotaWish WishOf(const VGpuSpec& spec) {
  const auto* speed = spec.goal ? std::get_if<sched::SpeedGoal>(&*spec.goal) : nullptr;
  return {.memory = spec.memory.request,
          .swap = spec.memory.swap,
          .compute = std::max(spec.compute.request_pct, speed ? speed->pct : 0),
          .priority = spec.compute.priority,
          .weight = spec.compute.weight,
          .first = spec.goal && !speed};
}

}  // namespace

QuotaBase QuotaKeeper::Base() const {
  QuotaBase base{.gpus = gpus_.size()};
  for (const auto& gpu : gpus_) {
    base.memory += gpu->Memory().Ledger().Capacity();
    base.swap += gpu->Memory().Ledger().CapacityWithSwap() - gpu->Memory().Ledger().Capacity();
  }
  return base;
}

// Those that are absent claim what they had: it is theirs when their GPU is back.
QuotaClaims QuotaKeeper::ClaimsOf(uid_t uid, std::string_view without) const {
  QuotaClaims claims;
  const std::uint64_t all_swap = Base().swap;
  for (const SavedVGpu& vgpu : table_.Saved()) {
    if (vgpu.spec.name == without || vgpu.spec.uid != uid) continue;
    const QuotaWish wish = WishOf(vgpu.spec);
    claims.memory += wish.memory;
    claims.swap += wish.swap.value_or(all_swap);
    claims.compute += wish.compute;
    ++claims.vgpus;
  }
  return claims;
}

Result<void> QuotaKeeper::Admit(const Caller& caller, VGpuSpec& spec, const VGpu* before) const {
  const auto quota = QuotaFor(caller, quotas_);
  if (!quota) return {};
  const QuotaBase base = Base();
  const QuotaClaims others = ClaimsOf(spec.uid, spec.name);
  if (!before && !spec.memory.swap) spec.memory.swap = SwapShare(*quota, base, others);
  const QuotaWish was = before ? WishOf(before->spec) : QuotaWish{};
  return CheckQuota(*quota, base, others, WishOf(spec), before ? &was : nullptr);
}

Result<void> QuotaKeeper::AdmitSpace(const Caller& caller, std::uint64_t used) const {
  const auto quota = QuotaFor(caller, quotas_);
  return quota ? CheckQuotaCount(*quota, "spaces that last (as vgpus)", quota->vgpus, used) : Result<void>();
}

Result<void> QuotaKeeper::AdmitProcess(const Caller& caller) const {
  const auto quota = QuotaFor(caller, quotas_);
  if (!quota) return {};
  std::uint64_t used = 0;
  for (const auto& gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) used += process->who.uid == caller.uid ? 1 : 0;
    }
  }
  return CheckQuotaCount(*quota, "processes", quota->processes, used);
}

Result<void> QuotaKeeper::AdmitSession(const Caller& caller, std::uint64_t used) const {
  const auto quota = QuotaFor(caller, quotas_);
  return quota ? CheckQuotaCount(*quota, "sessions", quota->sessions, used) : Result<void>();
}

}  // namespace tessera::server
