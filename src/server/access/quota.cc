#include "server/access/quota.h"

#include <fmt/format.h>

#include <algorithm>

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

QuotaBounds QuotaBounds::BuiltIn() {
  return {.memory = "50%",
          .swap = "max",
          .compute = 50,
          .vgpus = 16,
          .processes = 64,
          .sessions = 512,
          .priority = 8,
          .weight = 100};
}

QuotaBounds QuotaBounds::Or(const QuotaBounds& other) const {
  const auto either = [](const auto& own, const auto& theirs) { return own ? own : theirs; };
  return {.memory = either(memory, other.memory),
          .swap = either(swap, other.swap),
          .compute = either(compute, other.compute),
          .vgpus = either(vgpus, other.vgpus),
          .processes = either(processes, other.processes),
          .sessions = either(sessions, other.sessions),
          .priority = either(priority, other.priority),
          .weight = either(weight, other.weight)};
}

std::optional<UserQuota> QuotaFor(const Caller& caller, const std::vector<Quota>& quotas) {
  if (caller.IsOperator()) return {};
  const auto standard = std::ranges::find(quotas, "default", &Quota::name);
  const QuotaBounds bounds =
      standard == quotas.end() ? QuotaBounds::BuiltIn() : standard->bounds.Or(QuotaBounds::BuiltIn());
  auto own = std::ranges::find_if(quotas, [&](const Quota& quota) { return quota.user == caller.uid; });
  if (own == quotas.end()) {
    own = std::ranges::find_if(quotas, [&](const Quota& quota) {
      return quota.group && std::ranges::find(caller.groups, *quota.group) != caller.groups.end();
    });
  }
  if (own == quotas.end()) return UserQuota{"default", bounds};
  return UserQuota{own->name, own->bounds.Or(bounds)};
}

Result<void> CheckQuota(const UserQuota& quota, const QuotaBase& base, const QuotaClaims& others, const QuotaWish& wish,
                        const QuotaWish* before) {
  const QuotaBounds& most = quota.bounds;
  const QuotaWish none{.priority = UINT64_MAX};
  const QuotaWish& was = before ? *before : none;
  if (!before && others.vgpus >= *most.vgpus)
    return Exceeds(quota, "vgpus", fmt::to_string(*most.vgpus), fmt::to_string(others.vgpus), "1");
  if (auto ok = CheckBytes(quota, "memory", BytesOf(*most.memory, base.memory), others.memory, wish.memory, was.memory);
      !ok)
    return ok;
  // A vGPU without a bound may fill all host memory.
  if (const std::uint64_t swap = BytesOf(*most.swap, base.swap); swap != QuotaBounds::kNone) {
    const std::uint64_t had = before ? was.swap.value_or(base.swap) : 0;
    if (auto ok = CheckBytes(quota, "swap", swap, others.swap, wish.swap.value_or(base.swap), had); !ok) return ok;
  }
  // Percent of all GPUs, against sums of percent of one.
  const double compute = *most.compute * static_cast<double>(base.gpus);
  if (wish.compute > was.compute && others.compute + wish.compute > compute)
    return Exceeds(quota, "compute", fmt::format("{:g} % of a GPU", compute), fmt::format("{:g} %", others.compute),
                   fmt::format("{:g} %", wish.compute));
  if (wish.priority < was.priority && wish.priority < *most.priority)
    return Fail(EDQUOT,
                fmt::format("quota {} allows priority {} and higher numbers: {} asked for", quota.name, *most.priority,
                            wish.priority),
                "a lower number goes before all others; ask an operator for it");
  if (wish.weight > was.weight && wish.weight > *most.weight)
    return Fail(EDQUOT,
                fmt::format("quota {} allows weight of {}: {} asked for", quota.name, *most.weight, wish.weight),
                "ask for less, or an operator for a larger quota");
  return {};
}

std::optional<std::uint64_t> SwapShare(const UserQuota& quota, const QuotaBase& base, const QuotaClaims& others) {
  const std::uint64_t most = BytesOf(*quota.bounds.swap, base.swap);
  if (most == QuotaBounds::kNone) return {};
  const std::uint64_t left = most - std::min(most, others.swap);
  return *quota.bounds.vgpus == QuotaBounds::kNone
             ? left
             : std::min(left, most / std::max<std::uint64_t>(*quota.bounds.vgpus, 1));
}

Result<void> CheckQuotaCount(const UserQuota& quota, const char* what, std::uint64_t most, std::uint64_t used) {
  if (used < most) return {};
  return Exceeds(quota, what, fmt::to_string(most), fmt::to_string(used), "1");
}

}  // namespace tessera::server
