#include "server/containers/container_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/testing/temporary_folder.h"

namespace tessera::server {
namespace {

constexpr const char* kState =
    R"({"fds":["procFd","seccompFd"],"pid":7,"metadata":"team-a","state":{"id":"c\u00011","bundle":"/run/b"}})";

TEST(ContainerState, AsRuntimesWriteIt) {
  const auto state = ParseContainerState(kState);
  ASSERT_TRUE(state) << state.error().Text();
  EXPECT_EQ(state->id, "c1");
  EXPECT_EQ(state->bundle, "/run/b");
  EXPECT_EQ(state->metadata, "team-a");
  EXPECT_EQ(state->pid, 7);
  EXPECT_EQ(state->listener, 1u);
}

TEST(ContainerState, WhatIsNone) {
  for (const char* text : {"", "[]", R"({"fds":5,"pid":7})", R"({"fds":["x"],"pid":7})", R"({"fds":["seccompFd"]})",
                           R"({"fds":["seccompFd"],"pid":0})", R"({"fds":["seccompFd"],"pid":9999999999})"})
    EXPECT_EQ(ParseContainerState(text).error().code, EPROTO) << text;
}

TEST(ContainerState, TheLastValueOfAVariableCounts) {
  constexpr const char* kConfig = R"({"process":{"env":["A=1","TESSERA_VGPU=a:k=1","AB=2","TESSERA_VGPU=b:k","X",5]}})";
  EXPECT_EQ(*VariableIn(kConfig, "TESSERA_VGPU"), "b:k");
  EXPECT_EQ(*VariableIn(kConfig, "A"), "1");
  EXPECT_EQ(*VariableIn(kConfig, "X"), "");
  EXPECT_EQ(VariableIn("{}", "A").error().code, EPROTO);
  EXPECT_EQ(VariableIn("", "A").error().code, EPROTO);
}

TEST(ContainerState, AnyBytes) {
  std::mt19937 random(7);
  int right = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kState;
    for (unsigned n = random() % 4 + 1; n > 0; --n) text[random() % text.size()] = static_cast<char>(random());
    right += ParseContainerState(text).has_value();
    (void)VariableIn(text, "A");
  }
  EXPECT_GT(right, 100);
}

TEST(ContainerState, ABundleIsReadAsTheRuntimeSeesIt) {
  const TemporaryFolder bundle;
  const std::filesystem::path folder = bundle.path();
  EXPECT_FALSE(ReadConfig(folder, getpid()));
  std::ofstream(folder / "config.json") << "{}";
  EXPECT_EQ(*ReadConfig(folder, getpid()), "{}");
  EXPECT_EQ(*ReadConfig(folder, 1 << 22), "{}") << "a runtime that has ended";
  std::filesystem::resize_file(folder / "config.json", (4 << 20) + 1);
  EXPECT_EQ(ReadConfig(folder, getpid()).error().code, EFBIG);
}

}  // namespace
}  // namespace tessera::server
