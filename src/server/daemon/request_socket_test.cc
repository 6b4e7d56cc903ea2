#include "server/daemon/request_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
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
  const auto keyed = ParseToldRequest("a,b:key 2s");
  ASSERT_TRUE(keyed) << keyed.error().Text();
  EXPECT_THAT(keyed->vgpus, testing::ElementsAre("a", "b"));
  EXPECT_EQ(keyed->key, "key");
}

TEST(ParseToldRequest, WhatIsWrong) {
  for (const char* line : {"", "web", "12ms", "web ", "web 12 ms", "web -1ms", "web 1e3ms", "web nan", "  ", " 1ms",
                           "a,a 1ms", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q 1ms"}) {
    const auto told = ParseToldRequest(line);
    ASSERT_FALSE(told) << line;
    EXPECT_EQ(told.error().code, EINVAL) << line;
  }
  EXPECT_EQ(ParseToldRequest("web 400000h").error().code, ERANGE);
  EXPECT_EQ(ParseToldRequest("web 12")->latency, 12 * kSecond) << "as durations are in the configuration";
}

// Whatever is sent: what is read is what was written, and errors quote nothing of it.
TEST(ParseToldRequest, AnyBytes) {
  std::mt19937 random(7);
  int right = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string line(random() % 12 + 1, ' ');
    for (char& c : line) c = random() % 8 ? "web,15 ms"[random() % 9] : static_cast<char>(random());
    const auto told = ParseToldRequest(line);
    if (told) {
      ++right;
      EXPECT_TRUE(line.starts_with(told->vgpus.front())) << line;
      EXPECT_LE(told->vgpus.size(), kMostNames);
    } else {
      EXPECT_EQ(told.error().Text().find_first_of("\r\n\x1b"), std::string::npos);
    }
  }
  EXPECT_GT(right, 100);
}

}  // namespace
}  // namespace tessera::server
