#include "cli/top/top_columns.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::cli::top {
namespace {

bool Has(const std::vector<ListColumn>& columns, ColumnKind kind) {
  return std::ranges::any_of(columns, [kind](const ListColumn& column) { return column.kind == kind; });
}

int Width(const std::vector<ListColumn>& columns) {
  int width = -1;
  for (const ListColumn& column : columns) width += column.width + 1;
  return width;
}

TEST(ChooseColumns, AreNeverWiderThanTheLine) {
  for (int width = 1; width <= 400; ++width) {
    for (int wish = 0; wish < 16; ++wish) {
      const auto columns = ChooseColumns({.width = width,
                                          .tree = (wish & 1) != 0,
                                          .several_gpus = (wish & 2) != 0,
                                          .swaps = (wish & 4) != 0,
                                          .history = (wish & 8) != 0});
      EXPECT_LE(Width(columns), width);
      EXPECT_EQ(columns.front().kind, ColumnKind::kName);
    }
  }
}

TEST(ChooseColumns, EightyHoldAllThatIsUsual) {
  const auto columns = ChooseColumns({.width = 80});
  for (const auto kind : {ColumnKind::kPriority, ColumnKind::kWeight, ColumnKind::kState, ColumnKind::kShare,
                          ColumnKind::kCompute, ColumnKind::kMemory, ColumnKind::kMinute})
    EXPECT_TRUE(Has(columns, kind)) << static_cast<int>(kind);
  EXPECT_TRUE(Has(ChooseColumns({.width = 80, .swaps = true}), ColumnKind::kSwapped));
}

TEST(ChooseColumns, WhereThereIsLittleRoomTheShareIsThere) {
  EXPECT_EQ(ChooseColumns({.width = 20}).size(), 1u);
  const auto columns = ChooseColumns({.width = 40});
  EXPECT_TRUE(Has(columns, ColumnKind::kShare));
  EXPECT_FALSE(Has(columns, ColumnKind::kWeight));
}

TEST(ChooseColumns, WhatTellsNothingIsNotThere) {
  const auto columns = ChooseColumns({.width = 300, .history = false});
  for (const auto kind : {ColumnKind::kGpu, ColumnKind::kSwapped, ColumnKind::kMinute, ColumnKind::kVgpu})
    EXPECT_FALSE(Has(columns, kind)) << static_cast<int>(kind);
  EXPECT_TRUE(Has(ChooseColumns({.width = 300, .tree = false}), ColumnKind::kVgpu));
}

}  // namespace
}  // namespace tessera::cli::top
