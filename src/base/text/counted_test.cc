#include "base/text/counted.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Counted, OneThingIsSingular) {
  EXPECT_EQ(Counted(1, "tenant"), "1 tenant");
  EXPECT_EQ(Counted(1, "process"), "1 process");
  EXPECT_EQ(Counted(1, "tenant has", "tenants have"), "1 tenant has");
}

TEST(Counted, OthersArePlural) {
  EXPECT_EQ(Counted(0, "tenant"), "0 tenants");
  EXPECT_EQ(Counted(2, "other GPU"), "2 other GPUs");
  EXPECT_EQ(Counted(2, "process"), "2 processes");
  EXPECT_EQ(Counted(18446744073709551615u, "tenant has", "tenants have"), "18446744073709551615 tenants have");
}

}  // namespace
}  // namespace tessera
