// Programs behind a real filter, with a fake driver: what they see, and what is counted.
#include "guard/supervisor/supervisor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "guard/gate/borrowed_file.h"
#include "guard/supervisor/filter.h"
#include "guard/testing/stage.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;
using Kind = channel::ObjectEvent::Kind;

class SupervisorTest : public GatedProgramTest {};

TEST_F(SupervisorTest, MemoryOverTheLimitIsRefused) {
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(1, 6 * kMiB) == 0);
    TENANT_CHECK(rm.Memory(2, 6 * kMiB) == abi::kNoMemory);
    TENANT_CHECK(rm.Memory(2, 4 * kMiB) == 0);
    TENANT_CHECK(rm.Memory(3, 1) == abi::kNoMemory);
    TENANT_CHECK(rm.Free(1) == 0);
    TENANT_CHECK(rm.Memory(3, 6 * kMiB) == 0);
    TENANT_CHECK(rm.Memory(4, UINT64_MAX) == abi::kNoMemory);
    return 0;
  });
  EXPECT_EQ(stage->MostHeld(), 10 * kMiB);
  EXPECT_EQ(stage->Held(), 0u) << "the process has ended";
  EXPECT_EQ(stage->supervisor->Counts().out_of_memory, 3u);
}

TEST_F(SupervisorTest, WhatTheDriverWritesReachesTheProgram) {
  RunTenant(
      [] {
        const Rm rm{FakeDriver::Open()};
        abi::MemoryParams params{};
        params.size = 1;
        std::uint32_t object = 0;
        TENANT_CHECK(rm.Alloc(0x80, &object, abi::kMemoryLocal, &params, sizeof params) == 0);
        TENANT_CHECK(object == 0xd0000001);
        TENANT_CHECK(params.size == FakeDriver::kGranularity);
        TENANT_CHECK(params.limit == FakeDriver::kGranularity - 1);
        // The older form, and a size that only the driver knows.
        object = 0;
        params.size = 3 * kMiB;
        TENANT_CHECK(rm.AllocShort(0x80, &object, abi::kMemoryLocal, &params, 0) == 0);
        TENANT_CHECK(object == 0xd0000002);
        TENANT_CHECK(params.size == 4 * kMiB);
        return 0;
      },
      100 * kMiB);
  EXPECT_EQ(stage->MostHeld(), 6 * kMiB) << "what the driver made of it";
}

TEST_F(SupervisorTest, SaysOnWhichGpuMemoryIs) {
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    abi::DeviceParams device{.device = 3};
    std::uint32_t object = 0x80;
    TENANT_CHECK(rm.Memory(1, 2 * kMiB) == 0);  // under a device that was not made before us
    TENANT_CHECK(rm.Alloc(rm.client, &object, abi::kDevice, &device, sizeof device) == 0);
    TENANT_CHECK(rm.Memory(2, 4 * kMiB) == 0);
    TENANT_CHECK(rm.Memory(3, 1) == 0);  // 2 MiB, by the driver
    TENANT_CHECK(rm.Dup(4, rm.client, 2) == 0 && rm.Free(2) == 0);
    return 0;
  });
  EXPECT_EQ(stage->MostHeldOn(3), 6 * kMiB);
  EXPECT_EQ(stage->MostHeldOn(MemoryObjects::kUnknownDevice), 2 * kMiB);
  EXPECT_EQ(stage->Held(), 0u);
}

TEST_F(SupervisorTest, WhatTheDriverRoundsUpMustFitToo) {
  RunTenant(
      [] {
        const Rm rm{FakeDriver::Open()};
        TENANT_CHECK(rm.Memory(1, 1) == abi::kNoMemory);
        return 0;
      },
      kMiB);
  EXPECT_EQ(stage->driver->BytesInUse(), 0u);
}

TEST_F(SupervisorTest, TheDriversRefusalIsNotCharged) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(1, 2 * kMiB) == 0x1f);
    return 0;
  });
  Stage stage(10 * kMiB);
  stage.driver->FailAllocations(0x1f);
  EXPECT_EQ(stage.Run(tenant), 0);
  EXPECT_EQ(stage.MostHeld(), 2 * kMiB);
  EXPECT_EQ(stage.Held(), 0u);
}

TEST_F(SupervisorTest, HeapsOfOlderDriversCount) {
  RunTenant([] {
    const int file = FakeDriver::Open();
    std::array<std::uint32_t, 46> heap{0xc1d00001, 0x80, 2};
    heap[11] = 5;
    heap[22] = 6 * kMiB;
    const auto ask = [&] { return ioctl(file, _IOWR('F', 0x4a, heap), heap.data()); };
    TENANT_CHECK(ask() == 0 && heap[5] == 0);
    heap[11] = 6;
    TENANT_CHECK(ask() == 0 && heap[5] == abi::kNoMemory);
    heap[2] = 3;
    heap[11] = 5;
    TENANT_CHECK(ask() == 0 && heap[5] == 0);
    heap[2] = 2;
    TENANT_CHECK(ask() == 0 && heap[5] == 0);
    return 0;
  });
  EXPECT_EQ(stage->Held(), 0u);
}

TEST_F(SupervisorTest, OtherRequestsAreLeftAlone) {
  RunTenant([] {
    int pipe_fds[2], bytes = 0;
    TENANT_CHECK(pipe(pipe_fds) == 0 && write(pipe_fds[1], "abc", 3) == 3);
    TENANT_CHECK(ioctl(pipe_fds[0], FIONREAD, &bytes) == 0 && bytes == 3);
    const Rm rm{FakeDriver::Open()};
    std::uint32_t object = 1;
    std::array<std::uint32_t, 64> params{};
    // "Inappropriate" is the answer of the fake's memfd itself.
    TENANT_CHECK(rm.Alloc(0x80, &object, abi::kMemorySystem, &params, sizeof params) == -ENOTTY);
    TENANT_CHECK(rm.Control(1, abi::kGroupGetSlice, &params, 8) == -ENOTTY);
    TENANT_CHECK(rm.Free(77) == -ENOTTY);
    return 0;
  });
  EXPECT_EQ(stage->supervisor->Counts().passed, 3u);
}

TEST_F(SupervisorTest, TheVulkanDriversRegistersPass) {
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    // NVOS02_PARAMETERS and a descriptor; flags: nothing is allocated.
    std::array<std::uint32_t, 14> words{rm.client, 0x80, 1, 0x3f, 0x10000};
    words[8] = 0xffffff;  // one less than the size
    words[12] = UINT32_MAX;
    const auto ask = [&] { return ioctl(rm.file, _IOWR('F', 0x27, words), words.data()); };
    TENANT_CHECK(ask() == -1 && errno == ENOTTY);  // of the fake's memfd: it passed
    std::uint32_t object = 2;
    TENANT_CHECK(rm.Alloc(0x80, &object, 0x3f, nullptr, 0) == -ENOTTY);
    words[3] = abi::kMemoryLocal;
    TENANT_CHECK(ask() == -1 && errno == ENOTTY);
    words[3] = 0xc2;
    TENANT_CHECK(ask() == 0 && words[10] == abi::kNotSupported);
    TENANT_CHECK(rm.Alloc(0x80, &object, 0xc2, nullptr, 0) == abi::kInsufficientPermissions);
    return 0;
  });
  EXPECT_EQ(stage->MostHeld(), 0u) << "registers take no memory";
  EXPECT_EQ(stage->supervisor->Counts().passed, 3u);
  EXPECT_EQ(stage->Refused().size(), 2u);
}

TEST_F(SupervisorTest, OldRequestsMakeNoDevices) {
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    std::array<std::uint32_t, 5> words{rm.client, rm.client, 0x80, abi::kDevice, 0xffff};
    const auto ask = [&] { return ioctl(rm.file, _IOWR('F', 0x28, words), words.data()); };
    TENANT_CHECK(ask() == 0 && words[4] == abi::kInsufficientPermissions);
    words[3] = abi::kSubdevice;
    TENANT_CHECK(ask() == -1 && errno == ENOTTY);  // of the fake's memfd: it passed
    return 0;
  });
  EXPECT_EQ(stage->driver->Objects(), 0u);
  EXPECT_EQ(stage->Refused().size(), 1u);
}

TEST_F(SupervisorTest, ControlsAreRefusedOrPretended) {
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    std::uint64_t slice = 1000000;
    TENANT_CHECK(rm.Control(1, abi::kGroupSetSlice, &slice, sizeof slice) == 0);
    std::uint8_t enable[2] = {1, 0};
    TENANT_CHECK(rm.Control(1, abi::kGroupSchedule, enable, sizeof enable) == -ENOTTY);
    enable[0] = 0;
    TENANT_CHECK(rm.Control(1, abi::kGroupSchedule, enable, sizeof enable) == 0);
    TENANT_CHECK(rm.Control(1, 0x20801117, enable, 1) == abi::kInsufficientPermissions);
    abi::DisableChannels channels{.disable = 1, .channels = 1};
    channels.client[0] = 0xc1d00099;
    const auto disable = [&] { return rm.Control(1, abi::kDisableChannels, &channels, sizeof channels); };
    TENANT_CHECK(disable() == abi::kInsufficientPermissions);
    TENANT_CHECK(rm.Memory(1, 1) == 0);  // now the gate knows its client
    channels.client[0] = rm.client;
    TENANT_CHECK(disable() == 0);
    channels.disable = 0;
    TENANT_CHECK(disable() == abi::kInsufficientPermissions);
    channels.disable = 1;
    channels.channels = 2;
    channels.client[1] = 0xc1d00099;
    TENANT_CHECK(disable() == abi::kInsufficientPermissions);
    return 0;
  });
  EXPECT_EQ(stage->driver->ChannelsStopped(), 1u);
  EXPECT_EQ(stage->Refused().size(), 4u);
}

TEST_F(SupervisorTest, TellsOfTheObjectsThatLeadToChannels) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.file == 100 || dup2(rm.file, 100) == 100);
    const Rm its{100};
    abi::DeviceParams device{.device = 3};
    std::uint32_t object = 0x80;
    TENANT_CHECK(its.Alloc(its.client, &object, abi::kDevice, &device, sizeof device) == 0);
    abi::GroupParams group{.engine = 1};
    object = 0;
    TENANT_CHECK(its.Alloc(0x80, &object, abi::kChannelGroup, &group, sizeof group) == 0 && object != 0);
    std::array<std::uint32_t, 92> channel{};
    std::uint32_t handle = 0x90;
    TENANT_CHECK(its.Alloc(object, &handle, 0xc86f, &channel, sizeof channel) == 0);
    TENANT_CHECK(its.Alloc(object, &handle, 0xc86f, &channel, sizeof channel) == 0x19);  // the handle is taken
    TENANT_CHECK(its.Memory(0x91, 1) == 0 && its.Free(0x91) == 0);
    TENANT_CHECK(its.Free(object) == 0);
    return 0;
  });
  Stage stage(10 * kMiB);
  const pid_t pid = tenant.Pid();
  EXPECT_EQ(stage.Run(tenant), 0);
  const auto events = stage.Events(pid);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_TRUE(events[0].kind == Kind::kAlloc && events[0].client == 0xc1d00001 && events[0].object == 0xc1d00001);
  EXPECT_TRUE(abi::IsRoot(events[0].cls));
  EXPECT_EQ(events[0].fd, 100);
  EXPECT_TRUE(events[1].cls == abi::kDevice && events[1].detail == 3 && events[1].object == 0x80);
  EXPECT_TRUE(events[2].cls == abi::kChannelGroup && events[2].detail == 1 && events[2].parent == 0x80);
  EXPECT_EQ(events[2].object, 0xd0000001);
  EXPECT_TRUE(events[3].cls == 0xc86f && events[3].parent == events[2].object && events[3].fd == 100);
  EXPECT_TRUE(events[4].kind == Kind::kFree && events[4].object == events[2].object);
  EXPECT_TRUE(events[5].kind == Kind::kFree && events[5].object == events[5].client) << "its end";
}

TEST_F(SupervisorTest, OnlyCounting) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(1, 6 * kMiB) == -ENOTTY);  // it passed
    TENANT_CHECK(rm.Memory(2, 6 * kMiB) == abi::kNoMemory);
    TENANT_CHECK(rm.Dup(3, rm.client, 1) == -ENOTTY);
    TENANT_CHECK(rm.Free(1) == -ENOTTY);
    TENANT_CHECK(rm.Memory(2, 6 * kMiB) == abi::kNoMemory);
    TENANT_CHECK(rm.Free(3) == -ENOTTY);
    TENANT_CHECK(rm.Memory(2, 6 * kMiB) == -ENOTTY);
    abi::GroupParams group{.engine = 1};
    std::uint32_t object = 5;
    TENANT_CHECK(rm.Alloc(0x80, &object, abi::kChannelGroup, &group, sizeof group) == -ENOTTY);
    return 0;
  });
  Stage stage(10 * kMiB, {.execute_memory_calls = false, .execute_channel_calls = false});
  const pid_t pid = tenant.Pid();
  EXPECT_EQ(stage.Run(tenant), 0);
  EXPECT_EQ(stage.Held(), 0u);
  EXPECT_EQ(stage.driver->Objects(), 0u);
  const auto events = stage.Events(pid);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events[1].cls, abi::kChannelGroup);
}

TEST_F(SupervisorTest, TheGateStaysAcrossExec) {
  const int file = FakeDriver::Open();
  Tenant tenant([&] {
    const std::string number = std::to_string(dup(file));
    execl(TESSERA_EXEC_TENANT, "exec_tenant", number.c_str(), "20", nullptr);
    return __LINE__;
  });
  Stage stage(10 * kMiB);
  const std::uint64_t id = stage.Serve(tenant);
  int status = 0;
  ASSERT_EQ(waitpid(tenant.Pid(), &status, 0), tenant.Pid());
  stage.WaitUntilEnded(id);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(abi::kNoMemory));
  close(file);
}

TEST_F(SupervisorTest, OneGateOnly) {
  RunTenant([] {
    const auto again = InstallFilter();
    TENANT_CHECK(!again && again.error().code == EBUSY && !again.error().hint.empty());
    return 0;
  });
}

TEST_F(SupervisorTest, WithoutASupervisorRequestsFail) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(1, 1) == -ENOSYS);
    TENANT_CHECK(rm.Control(1, abi::kGroupGetSlice, nullptr, 0) == -ENOSYS);
    int pipe_fds[2], bytes;
    TENANT_CHECK(pipe(pipe_fds) == 0 && ioctl(pipe_fds[0], FIONREAD, &bytes) == 0);
    return 0;
  });
  auto stage = std::make_unique<Stage>(10 * kMiB);
  const std::uint64_t id = stage->supervisor->Add(tenant.TakeListener());
  stage->supervisor->Remove(id);
  stage.reset();
  tenant.Go();
  EXPECT_EQ(tenant.Wait(), 0);
}

TEST_F(SupervisorTest, TheSupervisorsEndEndsAWait) {
  int busy[2];
  ASSERT_EQ(pipe(busy), 0);
  Tenant tenant([&] {
    const Rm rm{FakeDriver::Open()};
    for (int round = 0;; ++round) {
      const std::int64_t status = rm.Memory(1, 1);
      TENANT_CHECK(status == 0 || status == -ENOSYS);
      if (status == -ENOSYS) return 0;
      TENANT_CHECK(rm.Free(1) == 0 || errno == ENOSYS);
      if (round == 100) TENANT_CHECK(write(busy[1], "x", 1) == 1);
    }
  });
  auto stage = std::make_unique<Stage>(10 * kMiB);
  stage->Serve(tenant);
  char byte;
  EXPECT_EQ(read(busy[0], &byte, 1), 1);
  stage.reset();
  EXPECT_EQ(tenant.Wait(), 0);
  close(busy[0]);
  close(busy[1]);
}

TEST_F(SupervisorTest, WhatIsNoListenerEnds) {
  Stage stage(10 * kMiB);
  // Always readable, and it knows no requests.
  stage.WaitUntilEnded(stage.supervisor->Add(UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC))));
}

TEST_F(SupervisorTest, TellsListenersFromOtherFiles) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC)), memory(FakeDriver::Open());
  const UniqueFd other(epoll_create1(EPOLL_CLOEXEC));  // nameless, as listeners are
  EXPECT_FALSE(IsListener(-1));
  EXPECT_FALSE(IsListener(null.Get()));
  EXPECT_FALSE(IsListener(memory.Get()));
  EXPECT_FALSE(IsListener(other.Get()));
  Tenant tenant([] { return 0; });
  const UniqueFd listener = tenant.TakeListener();
  EXPECT_TRUE(IsListener(listener.Get()));
}

TEST_F(SupervisorTest, FindsTheFilesOfProgramsBehindFilters) {
  FakeDriver driver;
  const UniqueFd file(FakeDriver::Open());
  Tenant tenant([] { return 0; });  // a child, so it has the file too
  const HeldFiles held = FindControlFiles(driver);
  EXPECT_TRUE(held.complete);
  EXPECT_TRUE(std::ranges::any_of(
      held.files, [&](const HeldFile& its) { return its.pid == tenant.Pid() && its.fd == file.Get(); }));
}

TEST(BorrowedFileTest, SaysThatASearchWasNotComplete) {
  FakeDriver driver;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const HeldFiles held = FindControlFiles(driver);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(held.complete);
  EXPECT_TRUE(held.files.empty());
}

}  // namespace
}  // namespace tessera::guard
