#include "cdi/gate_check.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace tessera::cdi {
namespace {

TEST(GateCheck, TheProfileMustSendItsListenerToTheDaemon) {
  const std::string socket = "/run/tessera/seccomp.sock";
  EXPECT_TRUE(CheckBehindGate(R"({"linux":{"seccomp":{"listenerPath":"/run/tessera/seccomp.sock"}}})", socket));
  for (const char* config : {"{}", R"({"linux":{}})", R"({"linux":{"seccomp":null}})", R"({"linux":{"seccomp":{}}})",
                             R"({"linux":{"seccomp":{"listenerPath":"/tmp/mine.sock"}}})"})
    EXPECT_EQ(CheckBehindGate(config, socket).error().code, EPERM) << config;
  for (const char* config : {"", "[]", "x"}) EXPECT_EQ(CheckBehindGate(config, socket).error().code, EPROTO) << config;
}

TEST(GateCheck, TheBundleOfAState) {
  EXPECT_EQ(*BundleIn(R"({"ociVersion":"1.0.2","bundle":"/run/b"})"), "/run/b");
  for (const char* state : {"", "{}", R"({"bundle":5})"}) EXPECT_EQ(BundleIn(state).error().code, EPROTO) << state;
}

}  // namespace
}  // namespace tessera::cdi
