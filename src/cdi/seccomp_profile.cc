#include "cdi/seccomp_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::cdi {
namespace {

// A rule for the ioctls whose request has these bits.
Json Rule(const char* action, std::uint32_t mask, std::uint32_t value) {
  return {{"names", {"ioctl"}},
          {"action", action},
          {"args", Json::array({{{"index", 1}, {"value", mask}, {"valueTwo", value}, {"op", "SCMP_CMP_MASKED_EQ"}}})}};
}

// Rules that allow the numbers that are not held: of a system call with two actions, libseccomp keeps no rule without
// arguments. A block is all numbers whose first `bits` of eight are those of `value`.
void AllowOthers(std::span<const std::uint32_t> held, std::uint32_t value, unsigned bits, Json& rules) {
  const std::uint32_t mask = 0xffU << (8 - bits) & 0xffU;
  const bool any = std::ranges::any_of(held, [&](std::uint32_t number) { return (number & mask) == value; });
  if (!any) return rules.push_back(Rule("SCMP_ACT_ALLOW", mask, value));
  if (bits == 8) return;
  AllowOthers(held, value, bits + 1, rules);
  AllowOthers(held, value | 0x80U >> bits, bits + 1, rules);
}

}  // namespace

Result<Json> SeccompProfile(Json base, const SeccompFacts& facts) {
  if (!base.is_object() || !base.contains("defaultAction") || !base.contains("syscalls") ||
      !base["syscalls"].is_array())
    return Fail(EINVAL, "the profile has no defaultAction or no syscalls", "use a seccomp profile of podman or Docker");
  Json rules = Json::array();
  for (Json& rule : base["syscalls"]) {
    if (!rule.is_object() || !rule.contains("names") || !rule["names"].is_array())
      return Fail(EINVAL, "a rule of the profile has no names", "use a seccomp profile of podman or Docker");
    Json names = Json::array();
    std::ranges::copy_if(rule["names"], std::back_inserter(names), [](const Json& name) { return name != "ioctl"; });
    if (names.empty()) continue;
    rule["names"] = std::move(names);
    rules.push_back(std::move(rule));
  }
  for (const std::uint32_t number : facts.numbers) rules.push_back(Rule("SCMP_ACT_NOTIFY", 0xff, number));
  if (base["defaultAction"] != "SCMP_ACT_ALLOW") AllowOthers(facts.numbers, 0, 0, rules);
  base["syscalls"] = std::move(rules);
  base["listenerPath"] = facts.socket;
  base["listenerMetadata"] = facts.vgpus;
  return base;
}

}  // namespace tessera::cdi
