#include "pager/chunks/block_table.h"

#include <gtest/gtest.h>

#include <iterator>

namespace tessera::pager {
namespace {

using namespace cuda;

class BlockTableTest : public testing::Test {
 protected:
  BlockTableTest() {
    for (const CUdeviceptr begin : {1000, 2000, 3000}) blocks_.Add(begin, 500, begin == 2000 ? kOther : kContext);
  }
  std::vector<CUdeviceptr> Within(CUdeviceptr address, std::uint64_t bytes) {
    const auto [first, last] = blocks_.Within(address, bytes);
    std::vector<CUdeviceptr> found;
    for (auto at = first; at != last; ++at) found.push_back(at->first);
    return found;
  }

  static inline const auto kContext = reinterpret_cast<CUcontext>(1), kOther = reinterpret_cast<CUcontext>(2);
  BlockTable blocks_;
};

TEST_F(BlockTableTest, IdsAreNeverGivenTwice) {
  EXPECT_EQ(blocks_.At(3000)->id, 3u);
  EXPECT_EQ(blocks_.next_id(), 4u);
  blocks_.Erase(3000);
  EXPECT_EQ(blocks_.Add(3000, 1, kContext).id, 4u);
  EXPECT_EQ(blocks_.At(3000, 3), nullptr);
  EXPECT_NE(blocks_.At(3000, 4), nullptr);
}

TEST_F(BlockTableTest, ABlockIsAroundEachOfItsBytes) {
  EXPECT_EQ(blocks_.Around(999), nullptr);
  EXPECT_EQ(blocks_.Around(1000)->begin, 1000u);
  EXPECT_EQ(blocks_.Around(1499)->begin, 1000u);
  EXPECT_EQ(blocks_.Around(1500), nullptr);
  EXPECT_EQ(blocks_.Around(UINT64_MAX), nullptr);
}

TEST_F(BlockTableTest, WithinBytesAreBlocksThatHaveSomeOfThem) {
  using Blocks = std::vector<CUdeviceptr>;
  EXPECT_EQ(Within(1499, 1), Blocks({1000}));
  EXPECT_EQ(Within(1500, 500), Blocks());
  EXPECT_EQ(Within(1400, 1601), Blocks({1000, 2000, 3000}));
  EXPECT_EQ(Within(0, 1000), Blocks());
}

TEST_F(BlockTableTest, OfAContextThoseBelowAnId) {
  EXPECT_EQ(blocks_.Of(kContext, 3).size(), 1u);
  EXPECT_EQ(blocks_.Of(kContext, UINT64_MAX).size(), 2u);
  EXPECT_EQ(blocks_.Of(kOther, UINT64_MAX).size(), 1u);
}

}  // namespace
}  // namespace tessera::pager
