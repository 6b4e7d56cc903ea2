#include "server/spaces/own_sms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <list>
#include <string>

namespace tessera::server {
namespace {

class OwnSmsTest : public testing::Test {
 protected:
  // A vGPU of space 1 that has its place; null: `refusal_` says why not.
  VGpu* Add(double percent, bool reserved = true, double from = 0) {
    VGpu& vgpu = vgpus_.emplace_back();
    vgpu.id = static_cast<VgpuId>(vgpus_.size());
    vgpu.spec.name = "v" + std::to_string(vgpu.id);
    vgpu.spec.space = "a";
    vgpu.spec.compute.space = {.number = 1, .sm_pct = percent, .reserved = reserved, .from_pct = from};
    auto placed = PlaceSms(vgpu, All());
    if (placed) return &vgpu;
    refusal_ = placed.error();
    vgpus_.pop_back();
    return nullptr;
  }
  static double From(const VGpu* vgpu) { return vgpu ? vgpu->spec.compute.space.from_pct : -1; }
  std::vector<VGpu*> All() {
    std::vector<VGpu*> all;
    for (VGpu& vgpu : vgpus_) all.push_back(&vgpu);
    return all;
  }

  std::list<VGpu> vgpus_;
  Error refusal_;
};

TEST_F(OwnSmsTest, EachHasItsOwn) {
  EXPECT_EQ(From(Add(30)), 0);
  EXPECT_EQ(From(Add(50)), 30);
  EXPECT_EQ(Add(30), nullptr);
  EXPECT_EQ(refusal_.code, ENOSPC);
  EXPECT_THAT(refusal_.message, testing::HasSubstr("20 %"));
  EXPECT_EQ(From(Add(20)), 80);
}

// Its programs went on while the daemon was restarted.
TEST_F(OwnSmsTest, OneThatIsRestoredKeepsThem) {
  EXPECT_EQ(From(Add(40, true, 60)), 60);
  EXPECT_EQ(From(Add(60)), 0);
}

TEST_F(OwnSmsTest, AllOfASpaceOrNone) {
  ASSERT_TRUE(Add(30));
  EXPECT_EQ(Add(30, false), nullptr);
  EXPECT_EQ(refusal_.code, EINVAL);
  vgpus_.clear();
  ASSERT_TRUE(Add(100, false));
  ASSERT_TRUE(Add(100, false)) << "limits may overlap";
  EXPECT_EQ(Add(30), nullptr);
}

TEST_F(OwnSmsTest, OtherSpacesAndGpusDoNotMatter) {
  ASSERT_TRUE(Add(100));
  vgpus_.back().spec.compute.space.number = 2;
  EXPECT_EQ(From(Add(100)), 0);
  vgpus_.back().gpu = 1;
  EXPECT_EQ(From(Add(100)), 0);
}

TEST_F(OwnSmsTest, TheyStayAsTheyAre) {
  const sched::SpacePlace own{.number = 1, .sm_pct = 30, .reserved = true};
  sched::SpacePlace wider = own, limit = own;
  wider.sm_pct = 40;
  limit.reserved = false;
  EXPECT_TRUE(KeepsSms(own, own));
  EXPECT_FALSE(KeepsSms(own, wider));
  EXPECT_FALSE(KeepsSms(own, limit));
  EXPECT_FALSE(KeepsSms(limit, own));
  sched::SpacePlace other_limit = limit;
  other_limit.sm_pct = 50;
  EXPECT_TRUE(KeepsSms(limit, other_limit));
}

}  // namespace
}  // namespace tessera::server
