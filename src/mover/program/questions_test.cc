#include "mover/program/questions.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace tessera::mover {
namespace {

using wire::LineType;

TEST(Questions, AreAnsweredInOrder) {
  Questions questions;
  EXPECT_EQ(questions.Answered(LineType::kEvict, 0).error().code, EPROTO);
  questions.Expect({.type = LineType::kEvict, .asked = 2}, 0);
  questions.Expect({.type = LineType::kSettle}, 0);
  questions.Expect({.type = LineType::kLoad, .asked = 3}, 0);
  EXPECT_EQ(questions.AskedChunks(), 5u);
  EXPECT_EQ(questions.Asks(), 2u);
  EXPECT_FALSE(questions.Answered(LineType::kSettle, 0)) << "it is not the next one";
  EXPECT_EQ(questions.AskedChunks(), 5u);
  EXPECT_EQ(questions.Answered(LineType::kEvict, 0)->asked, 2u);
  EXPECT_TRUE(questions.Answered(LineType::kSettle, 0));
  EXPECT_EQ(questions.AskedChunks(), 3u);
  questions.Clear();
  EXPECT_TRUE(questions.empty());
}

// Each question has its own time, which begins when the one before it is answered.
TEST(Questions, OnlyTheNextOneIsWaitedFor) {
  Questions questions;
  EXPECT_FALSE(questions.WaitsLongerThan(0, 1000));
  questions.Expect({.type = LineType::kSettle}, 100);
  questions.Expect({.type = LineType::kSettle}, 300);
  EXPECT_FALSE(questions.WaitsLongerThan(400, 500));
  EXPECT_TRUE(questions.WaitsLongerThan(400, 501));
  EXPECT_TRUE(questions.Answered(LineType::kSettle, 600));
  EXPECT_FALSE(questions.WaitsLongerThan(400, 1000));
  EXPECT_TRUE(questions.WaitsLongerThan(400, 1001));
  EXPECT_TRUE(questions.Answered(LineType::kSettle, 1001));
  EXPECT_FALSE(questions.WaitsLongerThan(400, 9000));
}

}  // namespace
}  // namespace tessera::mover
