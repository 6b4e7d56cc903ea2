// The same as the fuzzer, from fixed seeds: every run sees the same packets.
#include "server/clients/session_fuzz.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "server/record/log.h"

namespace tessera::server {
namespace {

using Script = std::vector<std::uint8_t>;

class SessionFuzzTest : public testing::Test {
 protected:
  void SetUp() override { log::Silence(true); }
  void TearDown() override { log::Silence(false); }
};

void Append(Script& script, std::uint8_t opcode, const Script& bytes) {
  script.push_back(static_cast<std::uint8_t>(bytes.size() & 0xff));
  script.push_back(static_cast<std::uint8_t>(bytes.size() >> 8));
  script.push_back(opcode);
  script.insert(script.end(), bytes.begin(), bytes.end());
}

// Hello and Attach from two programs, then one of everything: what mutation starts from.
Script Conversation() {
  Script script;
  for (std::uint8_t client : {0, 1, 2}) {
    Append(script, client, {0, 2});  // Hello to a and b
    Append(script, client, {1, 0});  // Attach to GPU 0
    Append(script, client, {1, 1});  // and 1
    Append(script, client, {4, 1, 0, 0, 0});
    Append(script, client, {9, client});       // Wants
    Append(script, client, {2, 0, 0, 0, 32});  // Reserve 512 MiB
  }
  Append(script, 0, {3, 0, 0, 0, 32});
  Append(script, 1, {5, 1});
  Append(script, 0, {6, 0});
  Append(script, 0, {7, 1, 2, 3});
  Append(script, 2, {4, 255, 255, 255, 255});
  for (std::uint8_t client : {0, 1}) {  // anew: what went before may have ended their connections
    Append(script, client, {0, 2});
    Append(script, client, {1, 0});
  }
  for (std::uint8_t key : {0, 1, 2}) Append(script, 0x20, {15, key, 0, 0, 0});  // Export with its descriptor
  Append(script, 1, {14, 1, 0, 0, 0});                                          // Import of the second
  Append(script, 0, {13, 2, 0, 0, 0});                                          // Unexport of the third
  return script;
}

TEST_F(SessionFuzzTest, AGoodConversation) { EXPECT_TRUE(RunScript(Conversation())); }

TEST_F(SessionFuzzTest, TruncatedAnywhere) {
  const Script script = Conversation();
  for (std::size_t length = 0; length < script.size(); ++length) {
    ASSERT_TRUE(RunScript(std::span(script).first(length))) << "the first " << length << " bytes";
  }
}

TEST_F(SessionFuzzTest, Mutated) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    Script script = Conversation();
    for (int change = 0; change < 1 + round % 20; ++change) {
      const std::size_t at = random() % script.size();
      switch (random() % 4) {
        case 0:
          script[at] = static_cast<std::uint8_t>(random());
          break;
        case 1:
          script[at] ^= static_cast<std::uint8_t>(1u << random() % 8);
          break;
        case 2:
          script.erase(script.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        default:
          script.insert(script.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::uint8_t>(random()));
      }
    }
    ASSERT_TRUE(RunScript(script)) << "round " << round;
  }
}

TEST_F(SessionFuzzTest, RandomPackets) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    Script script;
    for (int packet = 0; packet < 60; ++packet) {
      Script bytes(random() % 24);
      for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() % 3 ? random() % 10 : random());
      Append(script, static_cast<std::uint8_t>(random() % 10 ? random() % 4 : random()), bytes);
    }
    ASSERT_TRUE(RunScript(script)) << "round " << round;
  }
}

}  // namespace
}  // namespace tessera::server
