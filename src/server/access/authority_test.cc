#include "server/access/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace tessera::server {
namespace {

using testing::HasSubstr;
using Users = AccessRule::Users;

constexpr uid_t kDaemon = 0, kOwner = 1001, kOther = 1002;
constexpr gid_t kOperators = 77;
const Possession kVGpu{.name = "a", .uid = kOwner};
const Possession kShared{.name = "s", .uid = 0, .for_everybody = true};

const Authority kAuthority{{.daemon = kDaemon, .operators = kOperators}};
const Caller kMember = kAuthority.Identify(1003, {5, kOperators});
const Caller kOwnerCaller = kAuthority.Identify(kOwner, {5});
const Caller kOtherCaller = kAuthority.Identify(kOther, {6});

// 0, or the errno of the refusal.
int Answer(const Caller& caller, Operation operation, const Possession* thing = &kVGpu,
           const Authority& authority = kAuthority) {
  const auto allowed = authority.Allowed(caller, operation, thing);
  return allowed ? 0 : allowed.error().code;
}

bool ActsOnSomething(const AccessRule& rule) {
  return rule.users == Users::kOwner || rule.users == Users::kOwnerAndAll;
}

TEST(Authority, KnowsOperators) {
  EXPECT_TRUE(kAuthority.Identify(0, {}).IsOperator()) << "root";
  EXPECT_TRUE(kMember.IsOperator());
  EXPECT_TRUE(kAuthority.Operator().IsOperator());
  EXPECT_FALSE(kOwnerCaller.IsOperator());
  const Authority of_user{{.daemon = kOwner}};
  EXPECT_TRUE(of_user.Identify(kOwner, {}).IsOperator()) << "the daemon's own user";
  EXPECT_FALSE(of_user.Identify(kOther, {kOperators}).IsOperator()) << "there is no such group";
}

// Every operation, for every role.
TEST(Authority, GoesByTheTable) {
  for (const AccessRule& rule : AccessRules()) {
    const bool all = rule.users == Users::kAll || rule.users == Users::kTotals;
    const bool owned = ActsOnSomething(rule);
    EXPECT_EQ(Answer(kMember, rule.operation), 0) << rule.name;
    EXPECT_EQ(Answer(kOwnerCaller, rule.operation), all || owned ? 0 : EPERM) << rule.name;
    EXPECT_EQ(Answer(kOtherCaller, rule.operation), rule.nobody || all ? 0 : owned ? ENOENT : EPERM) << rule.name;
    EXPECT_EQ(Answer(kOtherCaller, rule.operation, &kShared),
              rule.nobody || all || rule.users == Users::kOwnerAndAll ? 0 : EPERM)
        << rule.name;
    EXPECT_EQ(Answer(Caller{}, rule.operation), rule.nobody ? 0 : EACCES) << rule.name;
  }
}

TEST(Authority, WithoutUsersTheyMayOnlyRunPrograms) {
  const Authority closed{{.daemon = kDaemon, .operators = kOperators, .users = false}};
  for (const AccessRule& rule : AccessRules()) {
    EXPECT_EQ(Answer(kMember, rule.operation, &kVGpu, closed), 0) << rule.name;
    const bool may = rule.nobody || rule.operation == Operation::kJoinVGpu;
    EXPECT_EQ(Answer(kOwnerCaller, rule.operation, &kVGpu, closed), may ? 0 : EPERM) << rule.name;
  }
  EXPECT_EQ(Answer(kOtherCaller, Operation::kJoinVGpu, &kVGpu, closed), ENOENT);
}

TEST(Authority, TotalsAreASetting) {
  const Authority without{{.daemon = kDaemon, .totals = false}};
  EXPECT_EQ(Answer(kOwnerCaller, Operation::kSeeTotals, nullptr, without), EPERM);
  EXPECT_EQ(Answer(kOwnerCaller, Operation::kSeeTotals, nullptr), 0);
}

TEST(Authority, AProcessIsItsUsersAndItsVGpusOwners) {
  const Possession process{.name = "7", .process = true, .uid = kOwner, .host = kOther};
  EXPECT_EQ(Answer(kOwnerCaller, Operation::kFreezeProcess, &process), 0);
  EXPECT_EQ(Answer(kOtherCaller, Operation::kFreezeProcess, &process), 0);
  EXPECT_EQ(Answer(kAuthority.Identify(9, {}), Operation::kFreezeProcess, &process), ENOENT);
}

// What may not be seen is refused in the words for what is not there.
TEST(Authority, NamesTellNothing) {
  const Possession none{.name = "a", .uid = uid_t(-1)};
  EXPECT_EQ(kAuthority.Allowed(kOtherCaller, Operation::kChangeVGpu, &kVGpu).error().Text(),
            kAuthority.Allowed(kOtherCaller, Operation::kChangeVGpu, &none).error().Text());
  EXPECT_EQ(kAuthority.Allowed(kOtherCaller, Operation::kChangeVGpu, &kVGpu).error().Text(), NoSuchVGpu("a").Text());
  EXPECT_THAT(kAuthority.Allowed(kOtherCaller, Operation::kChangeVGpu, &kShared).error().message,
              HasSubstr("for everybody"));
}

// TESSERA_UPDATE_DOCS=1 writes it.
TEST(Authority, TheDocumentHasTheTable) {
  const std::string path = TESSERA_SOURCE "/docs/security-model.md";
  std::ostringstream read;
  read << std::ifstream(path).rdbuf();
  std::string text = read.str();
  const std::size_t begin = text.find("| operation | operators"), end = text.find("\n\n", begin);
  ASSERT_NE(end, std::string::npos);
  if (std::getenv("TESSERA_UPDATE_DOCS")) {
    text.replace(begin, end + 1 - begin, AccessTable());
    std::ofstream(path) << text;
  }
  EXPECT_THAT(text, HasSubstr("\n\n" + AccessTable() + "\n"))
      << "TESSERA_UPDATE_DOCS=1 server_test --gtest_filter='Authority.*' makes it anew";
}

}  // namespace
}  // namespace tessera::server
