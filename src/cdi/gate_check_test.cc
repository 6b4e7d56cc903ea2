#include "cdi/gate_check.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace tessera::cdi {
namespace {

TEST(GateCheck, TheProfileMustSendItsListenerToTheDaemon) {
  const std::string socket = "/run/tessera/seccomp.sock";
  const auto with = [&](const std::string& rules) {
    return CheckBehindGate(
        R"({"linux":{"seccomp":{"listenerPath":"/run/tessera/seccomp.sock","syscalls":[)" + rules + "]}}}", socket);
  };
  const std::string notify = R"({"names":["ioctl"],"action":"SCMP_ACT_NOTIFY","args":[{"index":1}]})";
  EXPECT_TRUE(with(notify));
  EXPECT_TRUE(with(notify + R"(,{"names":["ioctl"],"action":"SCMP_ACT_ALLOW","args":[{"index":1}]})"));
  EXPECT_EQ(with("").error().code, EPERM);
  EXPECT_EQ(with(notify + R"(,{"names":["read","ioctl"],"action":"SCMP_ACT_ALLOW"})").error().code, EPERM);
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
