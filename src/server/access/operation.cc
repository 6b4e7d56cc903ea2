#include "server/access/operation.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::server {
namespace {

using enum Operation;
using Users = AccessRule::Users;

constexpr std::array<AccessRule, kOperations> kRules = {{
    {kHealth, "ask whether the daemon is alive (`/healthz`)", Users::kAll, true},
    {kSeePage, "get the page, without what it shows (`/`)", Users::kAll, true},
    {kSeeTotals, "see the GPUs' totals: capacity, used, promised, busy", Users::kTotals},
    {kSeeGpus, "see what the GPUs do: who has them, who steers them, moves", Users::kNone},
    {kCreateVGpu, "make a vGPU (users: within their quota)", Users::kAll},
    {kSeeVGpu, "see a vGPU", Users::kOwnerAndAll},
    {kJoinVGpu, "run a program in a vGPU", Users::kOwnerAndAll},
    {kChangeVGpu, "change a vGPU (users: within their quota)", Users::kOwner},
    {kFreezeVGpu, "freeze or thaw a vGPU", Users::kOwner},
    {kEvictVGpu, "evict a vGPU", Users::kOwner},
    {kSuspendVGpu, "suspend, resume or migrate a vGPU", Users::kOwner},
    {kRemoveVGpu, "remove a vGPU", Users::kOwner},
    {kSeeProcess, "see a process in a vGPU", Users::kOwner},
    {kFreezeProcess, "freeze or thaw a process in a vGPU", Users::kOwner},
    {kEvictProcess, "evict a process in a vGPU", Users::kOwner},
    {kSuspendProcess, "suspend, resume or migrate a process in a vGPU", Users::kOwner},
    {kSeeUnmanaged, "see, freeze or thaw unmanaged processes", Users::kNone},
    {kAdopt, "adopt a process", Users::kNone},
    {kSeeEvents, "see events of one's own vGPUs and processes", Users::kAll},
    {kSeeAllEvents, "see all events", Users::kNone},
    {kSeeTrace, "see the trace", Users::kNone},
    {kSeeMetrics, "see the metrics", Users::kNone},
    {kDoctor, "ask for the daemon's findings (`tessera doctor`)", Users::kNone},
    {kReload, "reload the configuration", Users::kNone},
    {kDrain, "drain or undrain a GPU, make room by moves (`tessera rebalance`)", Users::kNone},
}};

// An operation without a row would have an empty one at the end, and the rows behind it would be of others.
constexpr bool EachHasItsRow() {
  for (std::size_t i = 0; i < kOperations; ++i)
    if (kRules[i].operation != static_cast<Operation>(i) || *kRules[i].name == 0) return false;
  return true;
}
static_assert(EachHasItsRow(), "each operation needs a row, in their order");

const char* YesIf(bool yes) { return yes ? "yes" : "no"; }

}  // namespace

const std::array<AccessRule, kOperations>& AccessRules() { return kRules; }

std::string AccessTable() {
  std::string text =
      "| operation | operators | its owner | other users | of what is for everybody | TCP without the token |\n"
      "|---|---|---|---|---|---|\n";
  for (const AccessRule& rule : kRules) {
    const bool all = rule.users == Users::kAll || rule.users == Users::kTotals;
    const bool owned = rule.users == Users::kOwner || rule.users == Users::kOwnerAndAll;
    const char* others = rule.users == Users::kTotals ? "if `access.totals`" : YesIf(all);
    text += fmt::format("| {} | yes | {} | {} | {} | {} |\n", rule.name, owned ? "yes" : others, others,
                        owned ? YesIf(rule.users == Users::kOwnerAndAll) : others, YesIf(rule.nobody));
  }
  return text;
}

}  // namespace tessera::server
