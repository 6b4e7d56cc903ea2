#include "cli/nearest.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(EditDistance, CountsEveryKindOfMistake) {
  EXPECT_EQ(EditDistance("memory", "memory"), 0u);
  EXPECT_EQ(EditDistance("memroy", "memory"), 1u);   // swapped
  EXPECT_EQ(EditDistance("memor", "memory"), 1u);    // missing
  EXPECT_EQ(EditDistance("memmory", "memory"), 1u);  // too many
  EXPECT_EQ(EditDistance("nemory", "memory"), 1u);   // wrong
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> commands = {"run", "ps", "gpus", "vgpu", "doctor", "demo", "version"};
  EXPECT_EQ(Nearest("rnu", commands), "run");
  EXPECT_EQ(Nearest("docter", commands), "doctor");
  EXPECT_EQ(Nearest("gpu", commands), "gpus");
}

TEST(Nearest, GuessesNothingFarFetched) {
  EXPECT_EQ(Nearest("kubernetes", {"run", "ps", "version"}), "");
  EXPECT_EQ(Nearest("x", {"run"}), "");
  EXPECT_EQ(Nearest("x", {}), "");
}

}  // namespace
}  // namespace tessera::cli
