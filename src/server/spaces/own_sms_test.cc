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
  // Where the SMs of a vGPU begin that is to have so many percent; -1: `refusal_` says why not.
  double Moved(VGpu& vgpu, double percent) {
    sched::SpacePlace changed = vgpu.spec.compute.space;
    changed.sm_pct = percent;
    if (auto moved = MoveSms(vgpu, changed, All()); !moved) {
      refusal_ = moved.error();
      return -1;
    }
    vgpu.spec.compute.space = changed;
    return changed.from_pct;
  }
  Process& Run(VGpu& vgpu) {
    Process& process = processes_.emplace_back(*SharedPage::Create(0), 100);
    vgpu.processes.push_back(&process);
    return process;
  }
  static double From(const VGpu* vgpu) { return vgpu ? vgpu->spec.compute.space.from_pct : -1; }
  std::vector<VGpu*> All() {
    std::vector<VGpu*> all;
    for (VGpu& vgpu : vgpus_) all.push_back(&vgpu);
    return all;
  }

  std::list<Process> processes_;
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

// Moving them.

TEST_F(OwnSmsTest, WiderInTheirPlaceIfThatIsFree) {
  VGpu* vgpu = Add(30);
  EXPECT_EQ(Moved(*vgpu, 60), 0);
  VGpu* next = Add(40);  // from 60 % on
  EXPECT_EQ(Moved(*next, 20), 60);
  EXPECT_EQ(Moved(*vgpu, 70), -1);
  EXPECT_EQ(refusal_.code, ENOSPC);
  EXPECT_THAT(refusal_.message, testing::HasSubstr("60 %"));
}

TEST_F(OwnSmsTest, ElsewhereIfThatIsTheOnlyFreePiece) {
  VGpu* first = Add(20);
  Add(20);
  EXPECT_EQ(Moved(*first, 50), 40);
}

TEST_F(OwnSmsTest, NotWhileAProgramHasStreams) {
  VGpu* vgpu = Add(30);
  Process& process = Run(*vgpu);
  process.page->sm_pins = 2;
  EXPECT_EQ(Moved(*vgpu, 40), -1);
  EXPECT_EQ(refusal_.code, EBUSY);
  EXPECT_THAT(refusal_.message, testing::HasSubstr("2 streams"));
  process.page->sm_pins = 0;
  EXPECT_EQ(Moved(*vgpu, 40), 0);
}

TEST_F(OwnSmsTest, WhatAProgramHasNotLeftIsNobodys) {
  VGpu* vgpu = Add(60);
  Process& process = Run(*vgpu);
  process.page->sm_taken = WirePlaceOf(vgpu->spec.compute.space).Word();
  vgpu->spec.compute.space.sm_pct = 20;
  TellSms(All());
  EXPECT_EQ(wire::SmPlace::Of(process.page->sm_place), (wire::SmPlace{0, 2000}));
  EXPECT_TRUE(HasOtherSms(process));
  EXPECT_EQ(Add(50), nullptr);
  process.page->sm_taken = wire::SmPlace{0, 2000}.Word();
  EXPECT_FALSE(HasOtherSms(process));
  EXPECT_EQ(From(Add(50)), 20);
}

// All of them, by sm.burst.

TEST_F(OwnSmsTest, AllWhileNoOtherOfTheSpaceHasPrograms) {
  VGpu* vgpu = Add(60);
  VGpu* other = Add(40);
  VGpu* elsewhere = Add(10);
  ASSERT_FALSE(elsewhere);
  vgpu->spec.compute.space.burst = true;
  Process& process = Run(*vgpu);
  TellSms(All());
  EXPECT_EQ(process.page->sm_burst, 1u);
  EXPECT_EQ(wire::SmPlace::Of(process.page->sm_place), (wire::SmPlace{0, 6000}))
      << "where it goes if something keeps them";
  const std::uint32_t bell = process.page->doorbell;
  TellSms(All());
  EXPECT_EQ(process.page->doorbell, bell) << "nothing is new";

  Process& beside = Run(*other);
  TellSms(All());
  EXPECT_EQ(process.page->sm_burst, 0u);
  EXPECT_EQ(beside.page->sm_burst, 0u) << "its vGPU does not ask for it";
  other->spec.compute.space.number = 2;
  TellSms(All());
  EXPECT_EQ(process.page->sm_burst, 1u) << "the other one is in another space";
  TellSms(All(), /*known=*/false);
  EXPECT_EQ(process.page->sm_burst, 0u) << "others may come back";
  TellSms(All());
  vgpu->spec.compute.space.burst = false;
  TellSms(All());
  EXPECT_EQ(process.page->sm_burst, 0u);
}

TEST_F(OwnSmsTest, OneThatHasAllIsInNobodysWay) {
  VGpu* vgpu = Add(60);
  vgpu->spec.compute.space.burst = true;
  Process& process = Run(*vgpu);
  process.page->sm_taken = WirePlaceOf(vgpu->spec.compute.space).Word();
  TellSms(All());
  EXPECT_TRUE(HasOtherSms(process)) << "it has not all yet";
  process.page->sm_taken = wire::kAllSms.Word();
  EXPECT_FALSE(HasOtherSms(process));

  VGpu* other = Add(20);
  ASSERT_TRUE(other) << "it leaves them as soon as a program runs beside it";
  Run(*other);
  TellSms(All());
  EXPECT_TRUE(HasOtherSms(process)) << "it has not left yet";
  EXPECT_TRUE(Add(20));
}

TEST_F(OwnSmsTest, OneThatCouldNotLeaveAllKeepsThem) {
  VGpu* vgpu = Add(60);
  vgpu->spec.compute.space.burst = true;
  Process& process = Run(*vgpu);
  TellSms(All());
  process.page->sm_taken = wire::kAllSms.Word();
  process.page->sm_pins = 1;
  EXPECT_TRUE(HasOtherSms(process));
  EXPECT_FALSE(Add(20));
  EXPECT_EQ(refusal_.code, ENOSPC);
}

TEST_F(OwnSmsTest, WhetherTheyAreItsOwnStays) {
  VGpu* own = Add(30);
  sched::SpacePlace limit = own->spec.compute.space;
  limit.reserved = false;
  EXPECT_FALSE(MoveSms(*own, limit, All()));
  vgpus_.clear();
  VGpu* limited = Add(30, false);
  EXPECT_EQ(Moved(*limited, 90), 0) << "a limit has no place";
}

}  // namespace
}  // namespace tessera::server
