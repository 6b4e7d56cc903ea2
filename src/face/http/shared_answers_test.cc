#include "face/http/shared_answers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tessera::face {
namespace {

constexpr Nanos kLong = 3600 * kSecond;

class SharedAnswersTest : public testing::Test {
 protected:
  // What a caller gets; the number of answers that were made is in it.
  std::string Ask(SharedAnswers& answers, std::optional<uid_t> user = {}) {
    const auto text = answers.Get(user, [this]() -> Result<std::string> { return std::to_string(++made_); });
    return text ? **text : "error";
  }
  std::atomic<int> made_ = 0;
};

TEST_F(SharedAnswersTest, OneIsForAllUntilItIsOldOrSomethingChanges) {
  SharedAnswers lasting(kLong), fleeting(0);
  EXPECT_EQ(Ask(lasting), "1");
  EXPECT_EQ(Ask(lasting), "1");
  lasting.Forget();
  EXPECT_EQ(Ask(lasting), "2");
  EXPECT_EQ(Ask(lasting), "2");
  EXPECT_EQ(Ask(fleeting), "3");
  EXPECT_EQ(Ask(fleeting), "4");
}

TEST_F(SharedAnswersTest, EachUserHasAnotherOne) {
  SharedAnswers answers(kLong);
  EXPECT_EQ(Ask(answers), "1");
  EXPECT_EQ(Ask(answers, 7), "2");
  EXPECT_EQ(Ask(answers, 8), "3");
  EXPECT_EQ(Ask(answers, 7), "2");
  for (uid_t user = 100; user < 200; ++user) Ask(answers, user);
  EXPECT_EQ(Ask(answers, 199), std::to_string(made_)) << "the last ones are kept, however many users there are";
}

TEST_F(SharedAnswersTest, ErrorsAreNotKept) {
  SharedAnswers answers(kLong);
  const auto failed = answers.Get({}, []() -> Result<std::string> { return Fail(ESHUTDOWN, "ending"); });
  EXPECT_EQ(failed.error().code, ESHUTDOWN);
  EXPECT_EQ(Ask(answers), "1");
}

// A change while an answer is being made may be missing in it.
TEST_F(SharedAnswersTest, WhatWasBegunBeforeAChangeIsNotGivenAfterIt) {
  SharedAnswers answers(kLong);
  const auto old = answers.Get({}, [&]() -> Result<std::string> {
    answers.Forget();
    return "before";
  });
  EXPECT_EQ(**old, "before");
  EXPECT_EQ(Ask(answers), "1");
}

TEST_F(SharedAnswersTest, WhoAsksMeanwhileWaitsForTheSame) {
  SharedAnswers answers(kLong);
  std::vector<std::thread> threads;
  std::atomic<int> got = 0;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { got += Ask(answers) == "1" ? 1 : 0; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(got, 8);
}

}  // namespace
}  // namespace tessera::face
