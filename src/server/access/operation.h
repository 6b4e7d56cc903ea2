#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace tessera::server {

// All that somebody can ask the daemon for, by whatever face.
enum class Operation : unsigned char {
  kHealth,
  kSeePage,
  kSeeTotals,
  kSeeGpus,
  kCreateVGpu,
  kSeeVGpu,
  kJoinVGpu,
  kChangeVGpu,
  kFreezeVGpu,
  kEvictVGpu,
  kSuspendVGpu,
  kRemoveVGpu,
  kSeeProcess,
  kFreezeProcess,
  kEvictProcess,
  kSuspendProcess,
  kSeeUnmanaged,
  kAdopt,
  kSeeEvents,
  kSeeAllEvents,
  kSeeTrace,
  kSeeMetrics,
  kDoctor,
  kReload,
  kDrain,
  kCount,  // of them
};

// Who may do an operation. Operators may do all.
struct AccessRule {
  enum class Users {
    kNone,         // operators alone
    kTotals,       // every user, if access.totals is set
    kAll,          // every user
    kOwner,        // the user to whom the thing belongs
    kOwnerAndAll,  // likewise, and every user where it is for everybody
  };
  Operation operation{};
  const char* name = "";  // for people; Markdown
  Users users = Users::kNone;
  bool nobody = false;  // also by TCP without the token
};

inline constexpr std::size_t kOperations = static_cast<std::size_t>(Operation::kCount);

// The rule of each operation, in their order. Requests, documents (AccessTable) and tests go by this table alone.
const std::array<AccessRule, kOperations>& AccessRules();
inline const AccessRule& RuleOf(Operation operation) { return AccessRules()[static_cast<std::size_t>(operation)]; }

// The table of operations and roles in docs/security-model.md.
std::string AccessTable();

}  // namespace tessera::server
