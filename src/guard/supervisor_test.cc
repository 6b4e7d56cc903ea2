// Programs behind a real filter, with a fake driver: what they see, and what is counted.
#include "guard/supervisor.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "guard/filter.h"
#include "guard/testing/stage.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;
using Kind = channel::ObjectEvent::Kind;

// A body that runs behind the gate, and what it returned.
int Behind(Stage& stage, Tenant& tenant) {
  const std::uint64_t id = stage.Serve(tenant);
  const int line = tenant.Wait();
  stage.WaitUntilEnded(id);
  return line;
}

TEST(SupervisorTest, MemoryOverTheLimitIsRefused) {
  Tenant tenant([] {
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
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.MostHeld(), 10 * kMiB);
  EXPECT_EQ(stage.Held(), 0u) << "the process has ended";
  EXPECT_EQ(stage.supervisor->Counts().out_of_memory, 3u);
}

TEST(SupervisorTest, WhatTheDriverWritesReachesTheProgram) {
  Tenant tenant([] {
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
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(100 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.MostHeld(), 6 * kMiB) << "what the driver made of it";
}

TEST(SupervisorTest, WhatTheDriverRoundsUpMustFitToo) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(1, 1) == abi::kNoMemory);
    return 0;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.driver->BytesInUse(), 0u);
}

TEST(SupervisorTest, TheDriversRefusalIsNotCharged) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(1, 2 * kMiB) == 0x1f);
    return 0;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  stage.driver->FailAllocations(0x1f);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.MostHeld(), 2 * kMiB);
  EXPECT_EQ(stage.Held(), 0u);
}

TEST(SupervisorTest, HeapsOfOlderDriversCount) {
  Tenant tenant([] {
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
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.Held(), 0u);
}

TEST(SupervisorTest, NoWayAround) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    abi::MemoryParams params{};
    params.size = 20 * kMiB;
    std::uint32_t object = 1;
    TENANT_CHECK(rm.AllocShort(0x80, &object, abi::kMemoryLocal, &params, sizeof params, 'G') == abi::kNoMemory);
    std::array<std::uint64_t, 2> wrapped{};
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', 0xd3, wrapped), &wrapped) == -1 && errno == EINVAL);
    std::array<std::byte, 40> odd{};
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', 0x2b, odd), &odd) == -1 && errno == EINVAL);
    // What is no file of the driver now might be one a moment later.
    const Rm other{memfd_create("other", 0)}, device{FakeDriver::Open(KernelBoundary::File::kDevice)}, none{-1};
    TENANT_CHECK(other.Memory(1, 1) == -ENOTTY);
    TENANT_CHECK(device.Memory(1, 1) == -EINVAL);
    TENANT_CHECK(none.Memory(1, 1) == -EBADF);
    return 0;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.driver->Objects(), 0u);
  EXPECT_EQ(stage.Refused().size(), 2u);
}

#ifdef __x86_64__
// The same request by the system call of 32-bit programs.
int Ioctl32(int file, std::uint32_t request, const void* argument) {
  int result = 54;
  asm volatile("int $0x80"
               : "+a"(result)
               : "b"(file), "c"(request), "d"(reinterpret_cast<std::uintptr_t>(argument))
               : "memory", "r8", "r9", "r10", "r11");
  return result;
}

TEST(SupervisorTest, ThirtyTwoBitProgramsAreRefused) {
  const pid_t probe = fork();
  if (probe == 0) _exit(Ioctl32(-1, 0, nullptr) == -EBADF ? 0 : 1);
  int status = -1;
  waitpid(probe, &status, 0);
  if (status != 0) GTEST_SKIP() << "this kernel runs no 32-bit system calls";
  Tenant tenant([] {
    auto* low = static_cast<abi::AllocShort*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    TENANT_CHECK(Ioctl32(FakeDriver::Open(), _IOWR('F', 0x2b, abi::AllocShort), low) == -EPERM);
    TENANT_CHECK(Ioctl32(-1, _IOWR('F', 0x4e, abi::AllocShort), low) == -EBADF);
    return 0;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
}
#endif

TEST(SupervisorTest, OtherRequestsAreLeftAlone) {
  Tenant tenant([] {
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
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.supervisor->Counts().passed, 3u);
}

TEST(SupervisorTest, ControlsAreRefusedOrPretended) {
  Tenant tenant([] {
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
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.driver->ChannelsStopped(), 1u);
  EXPECT_EQ(stage.Refused().size(), 4u);
}

TEST(SupervisorTest, GarbageIsAnsweredAndHurtsNobody) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    void* const nowhere = reinterpret_cast<void*>(0x10);
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', 0x2b, abi::Alloc), nowhere) == -1 && errno == EFAULT);
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', 0x2b, abi::Alloc), UINT64_MAX) == -1 && errno == EFAULT);
    std::uint32_t object = 1;
    TENANT_CHECK(rm.Alloc(1, &object, abi::kMemoryLocal, nowhere, 128) == -EFAULT);
    TENANT_CHECK(rm.Alloc(1, &object, abi::kMemoryLocal, nowhere, UINT32_MAX) == -EINVAL);
    TENANT_CHECK(rm.Control(1, abi::kDisableChannels, nowhere, 536) == abi::kInsufficientPermissions);
    // Params that end at the end of what is mapped.
    auto* page =
        static_cast<std::byte*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(page + 4096, 4096);
    auto* params = reinterpret_cast<abi::MemoryParams*>(page + 4096 - sizeof(abi::MemoryParams));
    params->size = 2 * kMiB;
    TENANT_CHECK(rm.Alloc(1, &object, abi::kMemoryLocal, params, 0) == 0);
    // An answer that cannot be written.
    params->size = 3 * kMiB;
    mprotect(page, 4096, PROT_READ);
    object = 2;
    TENANT_CHECK(rm.Alloc(1, &object, abi::kMemoryLocal, params, sizeof *params) == -EFAULT);
    TENANT_CHECK(rm.Memory(3, 8 * kMiB) == 0);
    return 0;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
}

TEST(SupervisorTest, TellsOfTheObjectsThatLeadToChannels) {
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
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  const pid_t pid = tenant.Pid();
  EXPECT_EQ(Behind(stage, tenant), 0);
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

TEST(SupervisorTest, OthersClientsAreNotItsOwn) {
  // Both go by the same client, which the driver knows on the first one's file.
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  Tenant first([&] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(1, 2 * kMiB) == 0);
    TENANT_CHECK(write(go[1], "x", 1) == 1);
    pause();
    return 0;
  });
  Tenant second([&] {
    char byte;
    TENANT_CHECK(read(go[0], &byte, 1) == 1);
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(2, 2 * kMiB) == abi::kInvalidClient);
    TENANT_CHECK(rm.Free(1) == abi::kInvalidClient);
    abi::GroupParams group{.engine = 1};
    std::uint32_t object = 3;
    TENANT_CHECK(rm.Alloc(0x80, &object, abi::kChannelGroup, &group, sizeof group) == abi::kInvalidClient);
    abi::DisableChannels channels{.disable = 1, .channels = 1};
    channels.client[0] = rm.client;
    TENANT_CHECK(rm.Control(1, abi::kDisableChannels, &channels, sizeof channels) == abi::kInsufficientPermissions);
    return 0;
  });
  SKIP_UNLESS_PERMITTED(first);
  Stage stage(10 * kMiB);
  stage.Serve(first);
  const pid_t pid = second.Pid();
  EXPECT_EQ(Behind(stage, second), 0);
  EXPECT_TRUE(stage.Events(pid).empty());
  EXPECT_EQ(stage.Held(first.Pid()), 2 * kMiB);
  close(go[0]);
  close(go[1]);
}

TEST(SupervisorTest, OnlyCounting) {
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
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB, {.execute_memory_calls = false, .execute_channel_calls = false});
  const pid_t pid = tenant.Pid();
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.Held(), 0u);
  EXPECT_EQ(stage.driver->Objects(), 0u);
  const auto events = stage.Events(pid);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events[1].cls, abi::kChannelGroup);
}

TEST(SupervisorTest, TheGateStaysAcrossExec) {
  const int file = FakeDriver::Open();
  Tenant tenant([&] {
    const std::string number = std::to_string(dup(file));
    execl(TESSERA_EXEC_TENANT, "exec_tenant", number.c_str(), "20", nullptr);
    return __LINE__;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  const std::uint64_t id = stage.Serve(tenant);
  int status = 0;
  ASSERT_EQ(waitpid(tenant.Pid(), &status, 0), tenant.Pid());
  stage.WaitUntilEnded(id);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(abi::kNoMemory));
  close(file);
}

TEST(SupervisorTest, OneGateOnly) {
  Tenant tenant([] {
    const auto again = InstallFilter();
    TENANT_CHECK(!again && again.error().code == EBUSY && !again.error().hint.empty());
    return 0;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
}

TEST(SupervisorTest, WithoutASupervisorRequestsFail) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    TENANT_CHECK(rm.Memory(1, 1) == -ENOSYS);
    TENANT_CHECK(rm.Control(1, abi::kGroupGetSlice, nullptr, 0) == -ENOSYS);
    int pipe_fds[2], bytes;
    TENANT_CHECK(pipe(pipe_fds) == 0 && ioctl(pipe_fds[0], FIONREAD, &bytes) == 0);
    return 0;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  auto stage = std::make_unique<Stage>(10 * kMiB);
  const std::uint64_t id = stage->supervisor->Add(tenant.TakeListener());
  stage->supervisor->Remove(id);
  stage.reset();
  tenant.Go();
  EXPECT_EQ(tenant.Wait(), 0);
}

TEST(SupervisorTest, TheSupervisorsEndEndsAWait) {
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
  SKIP_UNLESS_PERMITTED(tenant);
  auto stage = std::make_unique<Stage>(10 * kMiB);
  stage->Serve(tenant);
  char byte;
  EXPECT_EQ(read(busy[0], &byte, 1), 1);
  stage.reset();
  EXPECT_EQ(tenant.Wait(), 0);
  close(busy[0]);
  close(busy[1]);
}

TEST(SupervisorTest, KilledInTheMiddleOfACall) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    rm.Memory(1, 4 * kMiB);
    return __LINE__;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  // It is gone before its memory is made, and the answer finds nobody.
  stage.on_charge = [&] {
    tenant.Kill();
    tenant.Wait();
  };
  stage.WaitUntilEnded(stage.Serve(tenant));
  EXPECT_EQ(stage.Held(), 0u);
  EXPECT_EQ(stage.MostHeld(), 4 * kMiB);
  EXPECT_EQ(stage.driver->BytesInUse(), 0u) << "nobody was left to free it";
}

TEST(SupervisorTest, WithoutItsFirstThread) {
  Tenant tenant([] {
    static const Rm rm{FakeDriver::Open()};
    const pid_t child = fork();
    if (child != 0) {
      int status = 1;
      waitpid(child, &status, 0);
      return status == 0 ? 0 : __LINE__;
    }
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          while (access(("/proc/" + std::to_string(getpid()) + "/exe").c_str(), R_OK) == 0) sched_yield();
          _exit(rm.Memory(1, 2 * kMiB) == 0 ? 0 : 1);
        },
        nullptr);
    syscall(SYS_exit, 0);
    return __LINE__;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_EQ(stage.MostHeld(), 2 * kMiB);
  EXPECT_EQ(stage.Held(), 0u);
}

TEST(SupervisorTest, AThreadThatChangesTheArgumentsGainsNothing) {
  Tenant tenant([] {
    static const Rm rm{FakeDriver::Open()};
    static abi::MemoryParams params{};
    static std::uint32_t spin_until = 0;
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          auto* size = reinterpret_cast<volatile std::uint64_t*>(&params.size);
          while (__atomic_load_n(&spin_until, __ATOMIC_RELAXED) == 0) {
            *size = 2 * kMiB;
            *size = 512 * kMiB;
          }
          return nullptr;
        },
        nullptr);
    int made = 0, refused = 0;
    for (int round = 0; round < 3000; ++round) {
      std::uint32_t object = 1;
      const std::int64_t status = rm.Alloc(0x80, &object, abi::kMemoryLocal, &params, sizeof params);
      TENANT_CHECK(status == 0 || status == abi::kNoMemory);
      status == 0 ? ++made : ++refused;
      if (status == 0) TENANT_CHECK(rm.Free(1) == 0);
    }
    __atomic_store_n(&spin_until, 1, __ATOMIC_RELAXED);
    pthread_join(thread, nullptr);
    return 0;
  });
  SKIP_UNLESS_PERMITTED(tenant);
  Stage stage(10 * kMiB);
  EXPECT_EQ(Behind(stage, tenant), 0);
  EXPECT_LE(stage.driver->MostBytesInUse(), 10 * kMiB);
  EXPECT_LE(stage.MostHeld(), 10 * kMiB);
  EXPECT_EQ(stage.Held(), 0u);
  EXPECT_EQ(stage.driver->BytesInUse(), 0u);
}

}  // namespace
}  // namespace tessera::guard
