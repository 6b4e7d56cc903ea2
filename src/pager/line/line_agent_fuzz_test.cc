// The same as the fuzzer, from fixed seeds: every run sees the same messages.
#include "pager/line/line_agent_fuzz.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tessera::pager {
namespace {

using Script = std::vector<std::uint8_t>;

// Allocates, moves out, settles, moves in: what mutation starts from. A message is 6, its type, its count, and how it
// names chunks: 24 says those of the last answer.
const Script kConversation = {0, 40, 0,  100, 6, 0, 3, 0, 6, 1, 3,  24, 6, 6, 0, 0, 0, 1, 1,  1, 6, 3, 3, 0, 6,
                              4, 3,  24, 6,   0, 2, 0, 6, 2, 2, 24, 6,  3, 8, 0, 6, 5, 8, 24, 3, 0, 4, 1, 0};

TEST(LineAgentFuzzTest, AGoodConversation) { EXPECT_EQ(RunAgentScript(kConversation), ""); }

TEST(LineAgentFuzzTest, TruncatedAnywhere) {
  for (std::size_t length = 0; length < kConversation.size(); ++length)
    ASSERT_EQ(RunAgentScript(std::span(kConversation).first(length)), "") << "the first " << length << " bytes";
}

TEST(LineAgentFuzzTest, Mutated) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    Script script = kConversation;
    for (int copies = round % 3; copies > 0; --copies)
      script.insert(script.end(), kConversation.begin(), kConversation.end());
    for (int change = 0; change < 1 + round % 20; ++change) {
      const auto at = script.begin() + static_cast<std::ptrdiff_t>(random() % script.size());
      switch (random() % 3) {
        case 0:
          *at = static_cast<std::uint8_t>(random());
          break;
        case 1:
          script.erase(at);
          break;
        default:
          script.insert(at, static_cast<std::uint8_t>(random()));
      }
    }
    ASSERT_EQ(RunAgentScript(script), "") << "round " << round;
  }
}

TEST(LineAgentFuzzTest, RandomBytes) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    Script script(400);
    for (auto& byte : script) byte = static_cast<std::uint8_t>(random() % 3 ? random() % 16 : random());
    ASSERT_EQ(RunAgentScript(script), "") << "round " << round;
  }
}

}  // namespace
}  // namespace tessera::pager
