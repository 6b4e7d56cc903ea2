#include "server/gpu/vgpu_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "server/testing/fake_driver.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;

class VGpuTableTest : public testing::Test {
 protected:
  void SetUp() override {
    loop_ = std::move(*EventLoop::Create());
    auto list = driver_.List();
    for (std::uint32_t gpu = 0; gpu < list->size(); ++gpu) {
      gpus_.push_back(std::make_unique<GpuServer>(*loop_, gpu, (*list)[gpu], 0, config_, channels_, SwapSetup(),
                                                  GpuServer::Hooks()));
    }
    table_ = std::make_unique<VGpuTable>(*loop_, gpus_, [this] { ++changes_; });
  }
  Result<VGpu*> Make(const VGpuRequest& request) { return table_->Create(request, 1000, 0); }
  Error Refused(const VGpuRequest& request) {
    auto made = Make(request);
    EXPECT_FALSE(made);
    return made ? Error{} : made.error();
  }

  FakeDriver driver_{2, 10 * kGiB};
  std::unique_ptr<EventLoop> loop_;
  const Config config_;
  ChannelServer channels_{nullptr, "this is a test", nullptr};
  VGpuTable::Gpus gpus_;
  std::unique_ptr<VGpuTable> table_;
  int changes_ = 0;
};

TEST_F(VGpuTableTest, NamesAreCheckedGeneratedAndUnique) {
  EXPECT_EQ(Refused({.name = "a b"}).code, EINVAL);
  EXPECT_EQ(Refused({.name = ""}).code, EINVAL);
  EXPECT_EQ(Refused({.name = ".."}).code, EINVAL);
  EXPECT_EQ(Refused({.name = std::string(64, 'x')}).code, EINVAL);
  EXPECT_TRUE(Make({.name = std::string(63, 'x')}));
  EXPECT_TRUE(Make({.name = "A-z_0.9"}));
  EXPECT_EQ(Refused({.name = "A-z_0.9"}).code, EEXIST);
  EXPECT_EQ((*Make({.program = "/usr/bin/python3.11"}))->spec.name, "python3.11-1");
  EXPECT_EQ((*Make({.program = "/usr/bin/python3.11"}))->spec.name, "python3.11-2");
  EXPECT_EQ((*Make({.program = "my prog\n"}))->spec.name, "my-prog--1");
  EXPECT_EQ((*Make({}))->spec.name, "vgpu-1");
  EXPECT_LE((*Make({.program = std::string(500, 'y')}))->spec.name.size(), 63u);
}

TEST_F(VGpuTableTest, AVGpuWithAKeyIsJoinedWithItOnly) {
  const std::string key = "0123456789abcdef";
  ASSERT_TRUE(Make({.name = "open", .gpu = "0"}));
  ASSERT_TRUE(Make({.name = "closed", .gpu = "1", .key = key}));
  const Authority authority({});
  const auto join = [&](const std::string& text) { return table_->Choose(text, authority, authority.Operator()); };
  EXPECT_EQ(join("closed").error().code, EACCES);
  EXPECT_EQ(join("closed:0123456789abcdee").error().code, EACCES);
  EXPECT_EQ(join("open,closed").error().code, EACCES);
  EXPECT_TRUE(join("closed:" + key));
  EXPECT_TRUE(join("open:anything"));
  ASSERT_TRUE(join("open,closed:" + key));
  EXPECT_EQ(join("open,closed:" + key)->size(), 2u);
  EXPECT_THAT(join("closed:wrong").error().Text(), testing::Not(HasSubstr(key)));
  EXPECT_EQ(Refused({.name = "short", .key = "abc"}).code, EINVAL);
  VGpu& closed = *table_->Find("closed");
  EXPECT_EQ(table_->Change(closed, {.key = key}, 0).error().code, EINVAL);
  EXPECT_EQ(table_->Saved().front().spec.key, key);
}

TEST_F(VGpuTableTest, NamesOfJobsAndDeclaredOnesAreForOperators) {
  table_->Declare({"team-1", "team"});
  const auto user = [&](const VGpuRequest& request) { return table_->Create(request, 1000, 0, {}, false); };
  for (const char* name : {"slurm-42-0", "slurm-", "team", "team-1"}) {
    const auto made = user({.name = name});
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().code, EPERM);
    EXPECT_THAT(made.error().message, HasSubstr("kept for"));
  }
  EXPECT_TRUE(user({.name = "slurm"}));
  EXPECT_EQ((*user({.program = "team"}))->spec.name, "team-2");
  EXPECT_TRUE(Make({.name = "slurm-42-0"}));
  EXPECT_TRUE(Make({.name = "team"}));
}

// The name of another user's vGPU whose GPU is not there now.
TEST_F(VGpuTableTest, ANameThatIsMadeUpIsNoAbsentOnes) {
  EXPECT_FALSE(table_->Restore({.spec = {.name = "python-1", .uid = 1001}, .gpu = FakeDriver::UuidOf(7)}, 0));
  const auto made = Make({.program = "python"});
  ASSERT_TRUE(made);
  EXPECT_EQ((*made)->spec.name, "python-2");
}

TEST_F(VGpuTableTest, WhatCannotBeMadeAnewStaysAbsent) {
  EXPECT_FALSE(table_->Restore({.spec = {.name = "a", .uid = 1000}, .gpu = FakeDriver::UuidOf(7)}, 0));
  const auto names = [&] {
    std::vector<std::string> names;
    for (const SavedVGpu& saved : table_->Saved()) names.push_back(saved.spec.name);
    return names;
  };
  EXPECT_FALSE(Make({.name = "a", .memory_request = "99G"}));
  EXPECT_FALSE(Make({.name = "a", .gpu = "9"}));
  EXPECT_FALSE(table_->Create({.name = "a"}, 1000, 0, [](VGpuSpec&, const VGpu*) { return Fail(EDQUOT, "too many"); }));
  EXPECT_THAT(names(), testing::ElementsAre("a"));
  EXPECT_TRUE(Make({.name = "a"}));
  EXPECT_THAT(names(), testing::ElementsAre("a"));
}

TEST_F(VGpuTableTest, AutoTakesTheGpuWithMostRoom) {
  ASSERT_TRUE(Make({.name = "a", .gpu = "0", .memory_limit = "6G"}));
  EXPECT_EQ((*Make({.name = "b", .memory_limit = "5G"}))->gpu, 1u);
  EXPECT_EQ((*Make({.name = "c", .gpu = "auto", .memory_limit = "5G"}))->gpu, 1u);
  EXPECT_EQ((*Make({.name = "d", .memory_limit = "4G"}))->gpu, 0u);
  ASSERT_TRUE(Make({.name = "e", .gpu = "0", .memory_request = "10G"}));
  ASSERT_TRUE(Make({.name = "f", .memory_request = "10G"}));
  EXPECT_THAT(Refused({.name = "g", .memory_request = "1G"}).message, HasSubstr("0 B left of 10 GiB"));
}

TEST_F(VGpuTableTest, AutoPassesOverAGpuWhoseTimeIsPromised) {
  ASSERT_TRUE(Make({.name = "a", .gpu = "0", .compute_request = "80"}));
  EXPECT_EQ((*Make({.name = "b", .compute_request = "50"}))->gpu, 1u);
  EXPECT_EQ(Refused({.name = "c", .compute_request = "60"}).code, ENOSPC);
}

TEST_F(VGpuTableTest, AutoGivesEachOfAGangAGpuOfItsOwn) {
  ASSERT_TRUE(Make({.name = "big", .gpu = "1", .memory_request = "6G"}));
  EXPECT_EQ((*Make({.name = "a", .gang = "job"}))->gpu, 0u);
  EXPECT_EQ((*Make({.name = "b", .gang = "job"}))->gpu, 1u) << "though the other has more room";
  EXPECT_EQ((*Make({.name = "c", .gang = "job"}))->gpu, 0u) << "there is no third GPU";
  EXPECT_EQ((*table_->Create({.name = "d", .gang = "job"}, 1001, 0))->gpu, 0u) << "this is another user's gang";
  EXPECT_EQ((*Make({.name = "e", .memory_request = "5G", .gang = "job"}))->gpu, 0u) << "only there is so much left";
}

TEST_F(VGpuTableTest, AGangCanBeChanged) {
  VGpu& vgpu = **Make({.name = "a", .gang = "job"});
  const std::string tag = TagOf(vgpu.spec);
  const int before = changes_;
  ASSERT_TRUE(table_->Change(vgpu, {.gang = "other"}, 0));
  EXPECT_EQ(vgpu.spec.gang, "other");
  EXPECT_EQ(changes_, before + 1);
  EXPECT_NE(TagOf(vgpu.spec), tag);
  ASSERT_TRUE(table_->Change(vgpu, {.compute_weight = "7"}, 0));
  EXPECT_EQ(vgpu.spec.gang, "other");
  EXPECT_FALSE(table_->Change(vgpu, {.gang = "a b"}, 0));
  EXPECT_FALSE(table_->Change(vgpu, {.compute_weight = "0", .gang = "job"}, 0));
  EXPECT_EQ(vgpu.spec.gang, "other");
  ASSERT_TRUE(table_->Change(vgpu, {.gang = "none"}, 0));
  EXPECT_EQ(vgpu.spec.gang, "");
}

TEST_F(VGpuTableTest, GpusAreNamedByIndexOrUuid) {
  EXPECT_EQ((*Make({.gpu = FormatUuid(FakeDriver::UuidOf(1))}))->gpu, 1u);
  EXPECT_EQ((*Make({.gpu = "1"}))->gpu, 1u);
  EXPECT_EQ(Refused({.gpu = "2"}).code, ENOENT);
  EXPECT_EQ(Refused({.gpu = "-1"}).code, ENOENT);
  EXPECT_EQ(Refused({.gpu = FormatUuid(FakeDriver::UuidOf(5))}).code, ENOENT);
}

TEST_F(VGpuTableTest, FiguresAreChecked) {
  EXPECT_THAT(Refused({.memory_limit = "lots"}).message, HasSubstr("memory_limit"));
  EXPECT_EQ(Refused({.memory_limit = "0"}).code, ERANGE);
  EXPECT_EQ(Refused({.memory_limit = "11G"}).code, ENOSPC);
  EXPECT_EQ(Refused({.memory_request = "11G"}).code, ENOSPC);
  EXPECT_THAT(Refused({.memory_request = "2G", .memory_limit = "1G"}).message,
              HasSubstr("above memory_limit of 1 GiB"));
  EXPECT_THAT(Refused({.memory_limit = "2G", .memory_max = "3G"}).message, HasSubstr("swap"));
  EXPECT_THAT(Refused({.compute_request = "150"}).message, HasSubstr("compute_request"));
  EXPECT_THAT(Refused({.compute_weight = "many"}).message, HasSubstr("compute_weight"));
  EXPECT_FALSE(Make({.compute_weight = "0"}));
  EXPECT_FALSE(Make({.compute_request = "50", .compute_limit = "30"}));
  EXPECT_EQ((*Make({.memory_limit = "25%"}))->spec.memory.limit, 10 * kGiB / 4);
  EXPECT_EQ((*Make({.memory_limit = "2G", .memory_max = "1G"}))->spec.memory.max, kGiB);
}

TEST(VGpuRequestTest, WhereMemoryIsSwappedMoreThanTheLimitMayBeAllocated) {
  VGpuSpec spec;
  const VGpuRequest request{.memory_limit = "2G", .memory_max = "20G", .memory_swap_max = "0"};
  EXPECT_THAT(ApplyFigures(request, 10 * kGiB, false, spec).error().hint, HasSubstr("swap.size"));
  EXPECT_FALSE(spec.memory.max);
  ASSERT_TRUE(ApplyFigures(request, 10 * kGiB, true, spec));
  EXPECT_EQ(spec.memory.max, 20 * kGiB);
  EXPECT_EQ(spec.memory.swap, 0u);
  ASSERT_TRUE(ApplyFigures({.memory_max = "max", .memory_swap_max = "max"}, 10 * kGiB, true, spec));
  EXPECT_FALSE(spec.memory.max);
  EXPECT_FALSE(spec.memory.swap);
}

TEST(VGpuRequestTest, MaxFollowsALimitUpAndNotDown) {
  VGpuSpec spec;
  const auto set = [&spec](const char* limit) {
    EXPECT_TRUE(ApplyFigures({.memory_limit = limit}, 100 * kGiB, true, spec));
    return spec.memory.max;
  };
  EXPECT_EQ(set("40G"), std::nullopt) << "a program that began without a limit";
  spec.memory.max = 40 * kGiB;
  EXPECT_EQ(set("10G"), 40 * kGiB);
  EXPECT_EQ(set("40G"), 40 * kGiB);
  EXPECT_EQ(set("60G"), 60 * kGiB);
  EXPECT_EQ(set("max"), std::nullopt);
}

TEST_F(VGpuTableTest, ARefusedChangeChangesNothing) {
  VGpu* a = *Make({.name = "a", .gpu = "0", .memory_limit = "2G", .compute_request = "30"});
  ASSERT_TRUE(Make({.name = "b", .gpu = "0", .compute_request = "60"}));
  const int changes = changes_;
  EXPECT_FALSE(table_->Change(*a, {.memory_limit = "3G", .compute_request = "50"}, 0));
  EXPECT_EQ(a->spec.memory.limit, 2 * kGiB);
  EXPECT_EQ(a->spec.compute.request_pct, 30);
  EXPECT_EQ(gpus_[0]->Memory().Ledger().Max(a->id), 2 * kGiB);
  EXPECT_EQ(table_->Change(*a, {.gpu = "1"}, 0).error().code, EINVAL);
  EXPECT_EQ(changes_, changes);
  ASSERT_TRUE(table_->Change(*a, {.memory_limit = "max", .compute_request = "40"}, 0));
  EXPECT_FALSE(a->spec.memory.limit);
  EXPECT_EQ(changes_, changes + 1);
}

TEST_F(VGpuTableTest, ARefusedVGpuLeavesNoTrace) {
  ASSERT_TRUE(Make({.name = "a", .gpu = "0", .compute_request = "80"}));
  EXPECT_FALSE(Make({.name = "b", .gpu = "0", .memory_limit = "8G", .compute_request = "30"}));
  EXPECT_FALSE(table_->Find("b"));
  EXPECT_EQ(gpus_[0]->Memory().Ledger().Promised(), 0u);
  EXPECT_TRUE(Make({.name = "b", .gpu = "0", .memory_limit = "10G", .compute_request = "20"}));
}

TEST_F(VGpuTableTest, AnEphemeralVGpuNeedsALivingOwner) {
  EXPECT_EQ(Refused({.ephemeral = true}).code, EINVAL);
  EXPECT_EQ(Refused({.ephemeral = true, .owner_pid = 999'999'999}).code, ESRCH);
  EXPECT_FALSE(table_->AnyLivingOwner());
  ASSERT_TRUE(Make({.ephemeral = true, .owner_pid = getpid()}));
  EXPECT_TRUE(table_->AnyLivingOwner());
}

}  // namespace
}  // namespace tessera::server
