#include "kubernetes/api_server/backoff.h"

#include <gtest/gtest.h>

namespace tessera::kubernetes {
namespace {

using std::chrono::seconds;

TEST(Backoff, GrowsWhileNothingLasts) {
  Backoff backoff;
  for (const int wait : {1, 2, 4, 8, 16, 32, 32}) EXPECT_EQ(backoff.After(seconds(0)), seconds(wait));
  EXPECT_EQ(backoff.After(seconds(240)), seconds(1));
  EXPECT_EQ(backoff.After(seconds(9)), seconds(2));
}

}  // namespace
}  // namespace tessera::kubernetes
