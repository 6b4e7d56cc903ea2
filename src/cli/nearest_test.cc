#include "cli/nearest.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

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
