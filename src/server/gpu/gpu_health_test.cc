#include "server/gpu/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/record/events.h"
#include "server/testing/test_daemon.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(GpuFault, SaysWhatAnXidMeans) {
  EXPECT_THAT((GpuFault{.kind = GpuFault::Kind::kXid, .xid = 31}).Text(), StartsWith("Xid 31 (GPU memory page fault"));
  EXPECT_EQ((GpuFault{.kind = GpuFault::Kind::kXid, .xid = 12345}).Text(), "Xid 12345");
  EXPECT_FALSE((GpuFault{.kind = GpuFault::Kind::kXid, .xid = 31}).Fatal());
  EXPECT_FALSE((GpuFault{.kind = GpuFault::Kind::kEcc}).Fatal());
  EXPECT_TRUE((GpuFault{.kind = GpuFault::Kind::kXid, .xid = 79}).Fatal()) << "it has fallen off the bus";
  EXPECT_TRUE((GpuFault{.kind = GpuFault::Kind::kLost}).Fatal());
}

class GpuHealthTest : public testing::Test {
 protected:
  void SetUp() override {
    daemon_.Make({.name = "a", .gpu = "0"});
    daemon_.Make({.name = "b", .gpu = "1"});
  }
  GpuReport Gpu(std::size_t index) {
    const auto gpus = daemon_.Api().Gpus();
    EXPECT_TRUE(gpus);
    return gpus->at(index);
  }
  void Raise(const GpuFault& fault) { daemon_.Driver().Raise(fault); }
  std::vector<Event> EventsOf(EventType type, std::uint64_t after) {
    std::vector<Event> found;
    for (Event& event : events::After(after, events::kKept).events) {
      if (event.type == type) found.push_back(std::move(event));
    }
    return found;
  }

  TestDaemon daemon_{{.gpus = 2}};
};

TEST_F(GpuHealthTest, AnXidIsCountedWhereItHappened) {
  const std::uint64_t before = events::Last();
  FakeClient program = daemon_.Connect("a");
  Raise({.gpu = 0, .kind = GpuFault::Kind::kXid, .xid = 31});
  ASSERT_TRUE(daemon_.Eventually([&] { return Gpu(0).health.xids == 1; }));
  EXPECT_EQ(Gpu(0).health.last_xid, 31u);
  EXPECT_THAT(Gpu(0).health.failed, IsEmpty()) << "it goes on";
  EXPECT_EQ(Gpu(1).health.xids, 0u);
  EXPECT_EQ(daemon_.Report("a").gpu_faults, 1u);
  EXPECT_EQ(daemon_.Report("b").gpu_faults, 0u);
  const auto told = EventsOf(EventType::kGpuXid, before);
  ASSERT_EQ(told.size(), 2u) << "of the GPU, and of the vGPU with a program there";
  EXPECT_EQ(told[1].vgpu, "a");
  EXPECT_EQ(told[1].owner, getuid());
  EXPECT_EQ(told[0].gpu, 0u);
  EXPECT_THAT(told[0].text, HasSubstr("Xid 31"));
  EXPECT_THAT(told[0].text, HasSubstr("in a"));
}

TEST_F(GpuHealthTest, ManyFaultsMakeFewEvents) {
  const std::uint64_t before = events::Last();
  for (int i = 0; i < 100; ++i)
    Raise({.gpu = 1, .kind = i % 2 ? GpuFault::Kind::kXid : GpuFault::Kind::kEcc, .xid = 13});
  ASSERT_TRUE(daemon_.Eventually([&] { return Gpu(1).health.xids + Gpu(1).health.ecc_errors == 100; }));
  EXPECT_EQ(Gpu(1).health.ecc_errors, 50u);
  const std::size_t told = EventsOf(EventType::kGpuXid, before).size() + EventsOf(EventType::kGpuEcc, before).size();
  EXPECT_LT(told, 50u);
}

TEST_F(GpuHealthTest, ALostGpuIsMarkedAndTakesNobodyAndOthersGoOn) {
  const std::uint64_t before = events::Last();
  FakeClient there = daemon_.Connect("a");
  Raise({.gpu = 0, .kind = GpuFault::Kind::kLost});
  ASSERT_TRUE(daemon_.Eventually([&] { return !Gpu(0).health.failed.empty(); }));
  EXPECT_TRUE(daemon_.Report("a").gpu_failed);
  EXPECT_FALSE(daemon_.Report("b").gpu_failed);
  const auto told = EventsOf(EventType::kGpuFailed, before);
  ASSERT_EQ(told.size(), 2u) << "of the GPU, and of its vGPU";
  EXPECT_EQ(told[1].vgpu, "a");

  FakeClient late(daemon_.RunDir());
  late.Hello("a");
  EXPECT_THAT(std::string(wire::TextOf(late.AttachRefused(FakeDriver::UuidOf(0)).text)),
              HasSubstr("GPU 0 (Fake GPU) has failed"));
  const auto made = daemon_.Api().Create({.name = "c", .gpu = "0"});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ENODEV);
  EXPECT_THAT(made.error().Text(), HasSubstr("GPU 0 (Fake GPU) has failed"));
  const auto elsewhere = daemon_.Api().Create({.name = "d"});
  ASSERT_TRUE(elsewhere) << elsewhere.error().Text();
  EXPECT_EQ(elsewhere->gpu, 1u);
  daemon_.Connect("b", 1);

  Raise({.gpu = 0, .kind = GpuFault::Kind::kLost});
  Raise({.gpu = 0, .kind = GpuFault::Kind::kXid, .xid = 79});
  ASSERT_TRUE(daemon_.Eventually([&] { return Gpu(0).health.xids == 1; }));
  EXPECT_EQ(EventsOf(EventType::kGpuFailed, before).size(), 2u) << "it can fail once";
}

}  // namespace
}  // namespace tessera::server
