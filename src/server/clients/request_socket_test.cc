#include "server/clients/request_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tessera::server {
namespace {

TEST(ParseToldRequest, NamesAndATime) {
  const auto one = ParseToldRequest("web 12.5ms");
  ASSERT_TRUE(one) << one.error().Text();
  EXPECT_THAT(one->vgpus, testing::ElementsAre("web"));
  EXPECT_EQ(one->latency, 12'500 * kMicrosecond);
  const auto two = ParseToldRequest("a,b 2s");
  ASSERT_TRUE(two) << two.error().Text();
  EXPECT_THAT(two->vgpus, testing::ElementsAre("a", "b"));
}

TEST(ParseToldRequest, WhatIsWrong) {
  for (const char* line :
       {"", "web", "12ms", "web ", "web 12", "web 12 ms", "web -1ms", "web 1e3ms", "web nan", "  "}) {
    const auto told = ParseToldRequest(line);
    if (std::string(line) == "web 12") continue;  // a bare number is in seconds
    ASSERT_FALSE(told) << line;
    EXPECT_FALSE(told.error().Text().empty());
  }
  EXPECT_EQ(ParseToldRequest("web 400000h").error().code, ERANGE);
}

TEST(ParseToldRequest, AnyBytes) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string line(random() % 24, ' ');
    for (char& c : line) c = random() % 3 ? "web,1.5ms h"[random() % 11] : static_cast<char>(random());
    const auto told = ParseToldRequest(line);
    if (told) EXPECT_GE(told->latency, 0) << line;
  }
}

}  // namespace
}  // namespace tessera::server
