#include "server/access/quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/size.h"

namespace tessera::server {
namespace {

// The configuration has checked the text.
std::uint64_t BytesOf(const std::string& text, std::uint64_t whole) {
  return text == "max" ? QuotaBounds::kNone : ParseSize(text, whole).value_or(0);
}

std::unexpected<Error> Exceeds(const UserQuota& quota, const char* key, const std::string& bound,
                               const std::string& used, const std::string& asked) {
  return Fail(EDQUOT,
              fmt::format("quota {} allows {} of {}: {} in use, {} asked for", quota.name, key, bound, used, asked),
              "ask for less, give back some of yours (tessera vgpu ls), or ask an operator for a larger quota");
}

Result<void> CheckBytes(const UserQuota& quota, const char* key, std::uint64_t most, std::uint64_t others,
                        std::uint64_t asked, std::uint64_t before) {
  if (asked <= before || (others <= most && asked <= most - others)) return {};
  return Exceeds(quota, key, FormatSize(most), FormatSize(others), FormatSize(asked));
}

}  // namespace

void UserQuota::Apply(const QuotaBounds& bounds) {
  memory = bounds.memory.value_or(memory);
  swap = bounds.swap.value_or(swap);
  compute = bounds.compute.value_or(compute);
  vgpus = bounds.vgpus.value_or(vgpus);
  processes = bounds.processes.value_or(processes);
  sessions = bounds.sessions.value_or(sessions);
  priority = bounds.priority.value_or(priority);
  weight = bounds.weight.value_or(weight);
}

std::optional<UserQuota> QuotaFor(const Caller& caller, const std::vector<Quota>& quotas) {
  if (caller.IsOperator()) return {};
  UserQuota quota;
  if (const auto standard = std::ranges::find(quotas, "default", &Quota::name); standard != quotas.end())
    quota.Apply(standard->bounds);
  auto own = std::ranges::find_if(quotas, [&](const Quota& each) { return each.user == caller.uid; });
  if (own == quotas.end()) {
    own = std::ranges::find_if(quotas, [&](const Quota& each) {
      return each.group && std::ranges::find(caller.groups, *each.group) != caller.groups.end();
    });
  }
  if (own == quotas.end()) return quota;
  quota.name = own->name;
  quota.Apply(own->bounds);
  return quota;
}

Result<void> CheckQuota(const UserQuota& quota, const QuotaBase& base, const QuotaClaims& others, const QuotaWish& wish,
                        const QuotaWish* before) {
  const QuotaWish none{.priority = UINT64_MAX};
  const QuotaWish& was = before ? *before : none;
  if (!before && others.vgpus >= quota.vgpus)
    return Exceeds(quota, "vgpus", fmt::to_string(quota.vgpus), fmt::to_string(others.vgpus), "1");
  if (auto ok = CheckBytes(quota, "memory", BytesOf(quota.memory, base.memory), others.memory, wish.memory, was.memory);
      !ok)
    return ok;
  // A vGPU without a bound may fill all host memory.
  if (const std::uint64_t swap = BytesOf(quota.swap, base.swap); swap != QuotaBounds::kNone) {
    const std::uint64_t had = before ? was.swap.value_or(base.swap) : 0;
    if (auto ok = CheckBytes(quota, "swap", swap, others.swap, wish.swap.value_or(base.swap), had); !ok) return ok;
  }
  // Percent of all GPUs, against sums of percent of one.
  const double compute = quota.compute * static_cast<double>(base.gpus);
  if (wish.compute > was.compute && others.compute + wish.compute > compute)
    return Exceeds(quota, "compute", fmt::format("{:g} % of a GPU", compute), fmt::format("{:g} %", others.compute),
                   fmt::format("{:g} %", wish.compute));
  const auto rank = [](const QuotaWish& each) { return std::pair(each.priority, !each.first); };
  if (rank(wish) < rank(was) && rank(wish) < std::pair(quota.priority, true) && wish.first)
    return Fail(
        EDQUOT,
        fmt::format("quota {} allows priority {} and higher numbers, and a latency goal at priority {} goes "
                    "before others there",
                    quota.name, quota.priority, wish.priority),
        fmt::format("ask for priority {} with the goal, or an operator for a larger quota", quota.priority + 1));
  if (wish.priority < was.priority && wish.priority < quota.priority)
    return Fail(EDQUOT,
                fmt::format("quota {} allows priority {} and higher numbers: {} asked for", quota.name, quota.priority,
                            wish.priority),
                "a lower number goes before all others; ask an operator for it");
  if (wish.weight > was.weight && wish.weight > quota.weight)
    return Fail(EDQUOT,
                fmt::format("quota {} allows weight of {}: {} asked for", quota.name, quota.weight, wish.weight),
                "ask for less, or an operator for a larger quota");
  return {};
}

std::optional<std::uint64_t> SwapShare(const UserQuota& quota, const QuotaBase& base, const QuotaClaims& others) {
  const std::uint64_t most = BytesOf(quota.swap, base.swap);
  if (most == QuotaBounds::kNone) return {};
  const std::uint64_t left = most - std::min(most, others.swap);
  return quota.vgpus == QuotaBounds::kNone ? left : std::min(left, most / std::max<std::uint64_t>(quota.vgpus, 1));
}

Result<void> CheckQuotaCount(const UserQuota& quota, const char* what, std::uint64_t most, std::uint64_t used) {
  if (used < most) return {};
  return Exceeds(quota, what, fmt::to_string(most), fmt::to_string(used), "1");
}

}  // namespace tessera::server
