#include "server/access/authority.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::server {
namespace {

using Users = AccessRule::Users;

std::unexpected<Error> ForOperators(const AccessRule& rule) {
  return Fail(EPERM, fmt::format("only operators may do this: {}", rule.name),
              "ask root, or a member of the group that api.group names");
}

bool Owns(const Caller& caller, const Possession& thing) {
  return caller.uid == thing.uid || (thing.host && caller.uid == *thing.host);
}

}  // namespace

Error NoSuchVGpu(const std::string& name) {
  return {ENOENT, fmt::format("there is no vGPU {}", name), "tessera vgpu ls lists those that you may see"};
}

Error NoSuchProcess(const std::string& pid) {
  return {ENOENT, fmt::format("process {} uses no GPU here", pid), "tessera ps lists those that do"};
}

Caller Authority::Identify(uid_t uid, std::vector<gid_t> groups) const {
  const bool member = terms_.operators && std::ranges::find(groups, *terms_.operators) != groups.end();
  const bool is_operator = uid == 0 || uid == terms_.daemon || member;
  return {.role = is_operator ? Caller::Role::kOperator : Caller::Role::kUser, .uid = uid, .groups = std::move(groups)};
}

Result<void> Authority::Allowed(const Caller& caller, Operation operation, const Possession* thing) const {
  const AccessRule& rule = RuleOf(operation);
  if (caller.IsOperator() || rule.nobody) return {};
  if (caller.role == Caller::Role::kNobody)
    return Fail(EACCES, "token missing or wrong", "send the header Authorization: Bearer TOKEN");
  // Programs join their vGPUs by another socket, which is open to all.
  if (!terms_.users && operation != Operation::kJoinVGpu) return ForOperators(rule);
  switch (rule.users) {
    case Users::kNone:
      return ForOperators(rule);
    case Users::kTotals:
      return terms_.totals ? Result<void>() : ForOperators(rule);
    case Users::kAll:
      return {};
    case Users::kOwner:
    case Users::kOwnerAndAll:
      break;
  }
  if (!thing) return ForOperators(rule);
  if (Owns(caller, *thing)) return {};
  if (!thing->for_everybody)
    return std::unexpected(thing->process ? NoSuchProcess(thing->name) : NoSuchVGpu(thing->name));
  if (rule.users == Users::kOwnerAndAll) return {};
  return Fail(EPERM, fmt::format("vGPU {} is for everybody, and only operators may change it", thing->name),
              "make one of your own");
}

}  // namespace tessera::server
