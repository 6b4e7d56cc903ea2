#include "channel/control/nvidia_control.h"

#include <gtest/gtest.h>

#include <numeric>

#include "channel/rm/rm_status.h"
#include "channel/testing/fake_rm.h"

namespace tessera::channel {
namespace {

constexpr GpuUuid kFirst = {1, 2, 3}, kSecond = {4, 5, 6}, kThird = {7, 8, 9};
constexpr std::uint32_t kCopyEngine = 0xb;

std::vector<FakeGpu> ThreeGpus() {
  return {{.id = 0x100, .device = 2, .subdevice = 0, .uuid = kFirst},
          {.id = 0x200, .device = 0, .subdevice = 0, .uuid = kSecond},
          {.id = 0x300, .device = 1, .subdevice = 0, .uuid = kThird}};
}

std::vector<std::uint32_t> Handles(std::uint32_t first, std::size_t count) {
  std::vector<std::uint32_t> handles(count);
  std::iota(handles.begin(), handles.end(), first);
  return handles;
}

// Control of kSecond as GPU 0 and of kFirst as GPU 1.
class NvidiaControlTest : public testing::Test {
 protected:
  void SetUp() override {
    auto control = OpenNvidiaControl({kSecond, kFirst}, rm_.System());
    ASSERT_TRUE(control) << control.error().Text();
    control_ = std::move(*control);
  }

  // Process `pid` with the 8 compute channels of a context, on GPU 0.
  Target Tenant(int pid) {
    const auto client = static_cast<std::uint32_t>(0x1000 * pid);
    return {.pid = pid, .process_fd = pid, .groups = {rm_.MakeGroup(pid, 5, client, 3, 1, 0, Handles(30, 8))}};
  }
  bool AllFrozen(const Target& target) const { return Frozen(target) == Channels(target); }
  static std::size_t Channels(const Target& target) {
    std::size_t count = 0;
    for (const Group& group : target.groups) count += group.channels.size();
    return count;
  }
  std::size_t Frozen(const Target& target) const {
    std::size_t count = 0;
    for (const Group& group : target.groups) {
      for (const std::uint32_t channel : group.channels) count += rm_.IsFrozen(group.client, channel) ? 1 : 0;
    }
    return count;
  }

  FakeRm rm_{ThreeGpus()};
  std::unique_ptr<Control> control_;
};

TEST_F(NvidiaControlTest, FindsTheGpusByTheirUuids) {
  EXPECT_EQ(control_->DeviceInstance(0), 0u);
  EXPECT_EQ(control_->DeviceInstance(1), 2u);
  EXPECT_EQ(control_->DeviceInstance(2), abi::kNoGpu);
  EXPECT_EQ(rm_.OwnObjects(), 4u);  // nothing stays of the GPU that nobody asked for
  control_.reset();
  EXPECT_EQ(rm_.OwnObjects(), 0u);
  EXPECT_EQ(rm_.OpenFiles(), 0u);
}

TEST_F(NvidiaControlTest, GpusOfOthersAreInNobodysWay) {
  FakeRm rm({{.id = 1, .device = 0, .uuid = kFirst, .allowed = false}, {.id = 2, .device = 1, .uuid = kSecond}});
  const auto control = OpenNvidiaControl({kSecond}, rm.System());
  ASSERT_TRUE(control) << control.error().Text();
  EXPECT_EQ((*control)->DeviceInstance(0), 1u);
  const auto other = OpenNvidiaControl({kFirst}, rm.System());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ENODEV);
  EXPECT_NE(other.error().message.find("NV_ERR_INSUFFICIENT_PERMISSIONS"), std::string::npos) << other.error().message;
}

TEST_F(NvidiaControlTest, AGpuThatIsNotThereIsNamed) {
  const auto control = OpenNvidiaControl({{0xab, 0xcd, 0xef}}, rm_.System());
  ASSERT_FALSE(control);
  EXPECT_EQ(control.error().message, "/dev/nvidiactl does not lead to GPU-abcdef00-0000-0000-0000-000000000000");
  FakeRm none({});
  EXPECT_EQ(OpenNvidiaControl({}, none.System()).error().code, ENODEV);
}

TEST_F(NvidiaControlTest, FreezesAndThaws) {
  const Target tenant = Tenant(10), other = Tenant(11);
  ASSERT_TRUE(control_->Freeze(0, {&tenant, 1}, Reach::kAll));
  EXPECT_TRUE(AllFrozen(tenant));
  EXPECT_EQ(Frozen(other), 0u);
  // Freezing again needs thawing again: who calls this keeps the books.
  ASSERT_TRUE(control_->Freeze(0, {&tenant, 1}, Reach::kAll));
  ASSERT_TRUE(control_->Thaw(0, {&tenant, 1}, Reach::kAll));
  EXPECT_TRUE(AllFrozen(tenant));
  ASSERT_TRUE(control_->Thaw(0, {&tenant, 1}, Reach::kAll));
  EXPECT_EQ(Frozen(tenant), 0u);
  EXPECT_EQ(rm_.disable_calls(), (std::vector<std::uint32_t>{8, 8, 8, 8}));
  EXPECT_EQ(control_->Counts().freezes, 2u);
  EXPECT_EQ(control_->Counts().thaws, 2u);
  EXPECT_EQ(control_->Counts().failures, 0u);
}

TEST_F(NvidiaControlTest, ComputeSparesTheCopyEngines) {
  Target tenant = Tenant(10);
  tenant.groups.push_back(rm_.MakeGroup(10, 5, 0xa000, 4, kCopyEngine, 0, {70}));
  tenant.groups.push_back(rm_.MakeGroup(10, 5, 0xa000, 6, 0, 0, {71}));  // of an engine that nobody told
  tenant.groups.push_back(rm_.MakeGroup(10, 5, 0xa000, 0, 0, 0, {72}));  // channels without a group
  ASSERT_TRUE(control_->Freeze(0, {&tenant, 1}, Reach::kCompute));
  EXPECT_FALSE(rm_.IsFrozen(0xa000, 70));
  EXPECT_TRUE(rm_.IsFrozen(0xa000, 71));
  EXPECT_TRUE(rm_.IsFrozen(0xa000, 72));
  EXPECT_EQ(Frozen(tenant), 10u);
  ASSERT_TRUE(control_->Freeze(0, {&tenant, 1}, Reach::kAll));
  EXPECT_TRUE(AllFrozen(tenant));
}

TEST_F(NvidiaControlTest, ManyChannelsGoInFullBatches) {
  std::vector<Target> tenants;
  for (int pid = 1; pid <= 25; ++pid) tenants.push_back(Tenant(pid));
  ASSERT_TRUE(control_->Freeze(0, tenants, Reach::kAll));
  for (const Target& tenant : tenants) EXPECT_TRUE(AllFrozen(tenant));
  EXPECT_EQ(rm_.disable_calls(), (std::vector<std::uint32_t>{64, 64, 64, 8}));
}

TEST_F(NvidiaControlTest, NothingToFreezeIsNoCall) {
  const Target empty = {.pid = 1};
  ASSERT_TRUE(control_->Freeze(0, {&empty, 1}, Reach::kAll));
  ASSERT_TRUE(control_->Thaw(0, {}, Reach::kAll));
  EXPECT_TRUE(rm_.disable_calls().empty());
}

TEST_F(NvidiaControlTest, AStaleChannelKeepsNobodyRunning) {
  std::vector<Target> tenants = {Tenant(1), Tenant(2), Tenant(3)};
  rm_.FreeChannel(0x2000, 34);
  ASSERT_TRUE(control_->Freeze(0, tenants, Reach::kAll));
  EXPECT_TRUE(AllFrozen(tenants[0]));
  EXPECT_TRUE(AllFrozen(tenants[2]));
  std::erase(tenants[1].groups[0].channels, 34u);
  EXPECT_TRUE(AllFrozen(tenants[1]));
  // All three and back, each alone, the second back and each of its channels.
  EXPECT_EQ(rm_.disable_calls(), (std::vector<std::uint32_t>{24, 24, 8, 8, 8, 1, 1, 1, 1, 1, 1, 1, 1, 8}));
  EXPECT_EQ(control_->Counts().freezes, 12u);
  EXPECT_EQ(control_->Counts().failures, 0u);
  // Nothing of what was done before the refusal counts twice.
  ASSERT_TRUE(control_->Thaw(0, tenants, Reach::kAll));
  for (const Target& tenant : tenants) EXPECT_EQ(Frozen(tenant), 0u);
}

TEST_F(NvidiaControlTest, AProcessThatHasEndedIsNoError) {
  const std::vector<Target> tenants = {Tenant(1), Tenant(2)};
  rm_.EndProcess(1);
  ASSERT_TRUE(control_->Freeze(0, tenants, Reach::kAll));
  EXPECT_TRUE(AllFrozen(tenants[1]));
  rm_.EndProcess(2);
  ASSERT_TRUE(control_->Thaw(0, tenants, Reach::kAll));
}

// Of processes that are frozen together one has a channel that the driver will not thaw.
TEST_F(NvidiaControlTest, ARefusalIsToldAndSparesTheOthers) {
  const std::vector<Target> tenants = {Tenant(1), Tenant(2), Tenant(3)};
  ASSERT_TRUE(control_->Freeze(0, tenants, Reach::kAll));
  rm_.Break(0x1000, 30, 0x65);
  const auto thawed = control_->Thaw(0, tenants, Reach::kAll);
  ASSERT_FALSE(thawed);
  EXPECT_EQ(thawed.error().code, ETIMEDOUT);
  EXPECT_EQ(thawed.error().message,
            "thaw channels of process 1: the NVIDIA driver answers NV_ERR_TIMEOUT, status 0x65");
  EXPECT_EQ(Frozen(tenants[1]), 0u);
  EXPECT_EQ(Frozen(tenants[2]), 0u);
  EXPECT_EQ(control_->Counts().failures, 1u);
}

TEST_F(NvidiaControlTest, AChannelOfAnotherGpuIsNotFrozenHere) {
  const Target tenant = Tenant(1);
  ASSERT_TRUE(control_->Freeze(1, {&tenant, 1}, Reach::kAll));
  EXPECT_EQ(Frozen(tenant), 0u);
  EXPECT_EQ(control_->Freeze(2, {&tenant, 1}, Reach::kAll).error().code, ENODEV);
}

TEST_F(NvidiaControlTest, SlicesGoThroughTheProcessesOwnFile) {
  Target tenant = Tenant(10);
  tenant.groups.push_back(rm_.MakeGroup(10, 6, 0xb000, 4, kCopyEngine, 0, {70}));
  tenant.groups.push_back(rm_.MakeGroup(10, 6, 0xb000, 5, 1, 0, {80}));
  EXPECT_EQ(control_->Slice(0, tenant), 2048 * kMicrosecond);
  const std::size_t files = rm_.OpenFiles();
  ASSERT_TRUE(control_->SetSlice(0, tenant, 7 * kMillisecond));
  EXPECT_EQ(rm_.OpenFiles(), files);  // nothing that was borrowed is kept
  EXPECT_EQ(rm_.SliceOf(0xa000, 3), 7000u);
  EXPECT_EQ(rm_.SliceOf(0xb000, 4), 2048u);
  EXPECT_EQ(rm_.SliceOf(0xb000, 5), 7000u);
  EXPECT_EQ(control_->Slice(0, tenant), 7 * kMillisecond);
  EXPECT_EQ(control_->Counts().slices, 2u);
  EXPECT_EQ(control_->SetSlice(0, tenant, 999).error().code, ERANGE);
}

TEST_F(NvidiaControlTest, SlicesOfWhatIsGone) {
  Target tenant = Tenant(10);
  tenant.groups.insert(tenant.groups.begin(), rm_.MakeGroup(10, 6, 0xb000, 4, 1, 0, {70}));
  rm_.CloseFile(10, 6);
  ASSERT_TRUE(control_->SetSlice(0, tenant, kMillisecond));
  EXPECT_EQ(control_->Slice(0, tenant), kMillisecond);
  // A group that was freed, in a file that is open.
  tenant.groups[1].handle = 99;
  EXPECT_TRUE(control_->SetSlice(0, tenant, kMillisecond));
  EXPECT_EQ(control_->Slice(0, tenant).error().code, ENOENT);
  rm_.EndProcess(10);
  EXPECT_EQ(control_->SetSlice(0, tenant, kMillisecond).error().code, ESRCH);
  EXPECT_EQ(control_->Counts().failures, 1u);
}

TEST_F(NvidiaControlTest, SlicesNeedTheRightToBorrow) {
  Target tenant = Tenant(10);
  rm_.ForbidBorrowing();
  EXPECT_EQ(control_->SetSlice(0, tenant, kMillisecond).error().code, EPERM);
  tenant.process_fd = -1;
  EXPECT_EQ(control_->SetSlice(0, tenant, kMillisecond).error().code, EBADF);
  EXPECT_EQ(control_->Slice(0, tenant).error().code, EBADF);
  EXPECT_TRUE(control_->Freeze(0, {&tenant, 1}, Reach::kAll));
}

TEST_F(NvidiaControlTest, GroupsWithoutFileHaveNoSlice) {
  Target tenant = Tenant(10);
  tenant.groups[0].fd = -1;
  EXPECT_TRUE(control_->SetSlice(0, tenant, kMillisecond));
  EXPECT_EQ(rm_.SliceOf(0xa000, 3), 2048u);
}

TEST(RmStatus, NamesWhatItKnows) {
  EXPECT_TRUE(CheckStatus(abi::kOk, "x"));
  EXPECT_STREQ(StatusName(abi::kInvalidClient), "NV_ERR_INVALID_CLIENT");
  EXPECT_EQ(StatusName(0x12345), nullptr);
  const auto refused = CheckStatus(abi::kInsufficientPermissions, "make a device");
  EXPECT_EQ(refused.error().code, EPERM);
  EXPECT_EQ(refused.error().Text(),
            "make a device: the NVIDIA driver answers NV_ERR_INSUFFICIENT_PERMISSIONS, status 0x1b; "
            "run the daemon as root");
  EXPECT_EQ(CheckStatus(0x12345, "y").error().message, "y: the NVIDIA driver answers status 0x12345");
}

// The machine's own /dev/nvidiactl, where there is none.
TEST(RmFile, NoDriverIsSaidSo) {
  if (access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "this machine has an NVIDIA driver";
  const auto file = MakeRmSystem()->OpenControl();
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ENODEV);
}

}  // namespace
}  // namespace tessera::channel
