#include <gtest/gtest.h>

#include "server/testing/fake_client.h"
#include "server/testing/fake_driver.h"
#include "server/testing/test_daemon.h"

namespace tessera::server {
namespace {

// Under the last daemon, which was killed while the vGPUs changed their GPUs, b was on GPU 0 already.
TEST(AwayProgramTest, ComesBackToTheVGpuThatItNamesWhereverThatIs) {
  TestDaemon daemon({.gpus = 2});
  daemon.Make({.name = "a", .gpu = "0"});
  daemon.Make({.name = "b", .gpu = "1"});
  FakeClient client(daemon.RunDir());
  client.Hello("a,b");
  wire::Attach attach{.gpu = FakeDriver::UuidOf(0), .away = wire::AwayWord(1, /*returns=*/true)};
  wire::SetText(attach.vgpu, "b");
  EXPECT_EQ(wire::TextOf(client.Attach(attach).vgpu), "b");
  EXPECT_EQ(client.Page().gpu, 1u);
  attach = {.gpu = FakeDriver::UuidOf(1), .away = wire::AwayWord(0, /*returns=*/true)};
  wire::SetText(attach.vgpu, "a");
  EXPECT_EQ(wire::TextOf(client.Attach(attach).vgpu), "a");
  EXPECT_EQ(client.Page().gpu, 0u);
}

TEST(AwayProgramTest, ComesToNoVGpuThatItHasNotJoined) {
  TestDaemon daemon({.gpus = 2});
  daemon.Make({.name = "a", .gpu = "0"});
  daemon.Make({.name = "other", .gpu = "1"});
  FakeClient client(daemon.RunDir());
  client.Hello("a");
  wire::Attach attach{.gpu = FakeDriver::UuidOf(1), .away = wire::AwayWord(0, /*returns=*/true)};
  wire::SetText(attach.vgpu, "other");
  EXPECT_TRUE(client.Send(attach));
  EXPECT_EQ(client.ReadRefused().code, ENODEV);
}

}  // namespace
}  // namespace tessera::server
