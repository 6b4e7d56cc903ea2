#include "cli/terminal/table.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Table, AlignsColumns) {
  Table table({{"NAME"}, {"MEMORY", Align::kRight}, {"STATE"}});
  table.Add({"train", "20 GiB", "active"});
  table.Add({"a-long-name", "512 MiB", "idle"});
  EXPECT_EQ(table.Text(false),
            "NAME          MEMORY  STATE\n"
            "train         20 GiB  active\n"
            "a-long-name  512 MiB  idle\n");
}

TEST(Table, ShowsThatThereIsNothing) {
  Table table({{"NAME"}, {"OWNER"}});
  table.Add({"a", ""});
  EXPECT_EQ(table.Text(false), "NAME  OWNER\na     -\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{"NAME"}, {"X"}});
  table.Add({"größe", "1"});
  table.Add({"sizes", "2"});
  EXPECT_EQ(table.Text(false), "NAME   X\ngröße  1\nsizes  2\n");
}

TEST(Table, TitlesAreBoldOnlyWhenAsked) {
  Table table({{"NAME"}});
  EXPECT_EQ(table.Text(true), "\033[1mNAME\033[0m\n");
  EXPECT_EQ(table.Text(false), "NAME\n");
}

TEST(Table, CutsWhatMayBeCutWhereItIsTooWide) {
  Table table({{"NAME", Align::kLeft, /*shortens=*/true}, {"STATE"}});
  table.Add({"a-very-long-größe", "unmanaged"});
  table.Add({"short", "idle"});
  EXPECT_EQ(table.Text(false, 28), table.Text(false));
  EXPECT_EQ(table.Text(false, 26),
            "NAME             STATE\n"
            "a-very-long-gr…  unmanaged\n"
            "short            idle\n");
  EXPECT_EQ(table.Text(false, 27),
            "NAME              STATE\n"
            "a-very-long-grö…  unmanaged\n"
            "short             idle\n");
  EXPECT_EQ(table.Text(false, 3),
            "NAME      STATE\n"
            "a-very-…  unmanaged\n"
            "short     idle\n");
}

TEST(Table, CutsNothingElse) {
  Table table({{"NAME"}, {"STATE"}});
  table.Add({"a-very-long-name", "idle"});
  EXPECT_EQ(table.Text(false, 10), table.Text(false));
}

}  // namespace
}  // namespace tessera::cli
