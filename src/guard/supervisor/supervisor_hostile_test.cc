// Programs behind a real filter that do what they should not.
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "guard/supervisor/supervisor.h"
#include "guard/testing/stage.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

class SupervisorHostileTest : public GatedProgramTest {};

TEST_F(SupervisorHostileTest, NoWayAround) {
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    abi::MemoryParams params{};
    params.size = 20 * kMiB;
    std::uint32_t object = 1;
    TENANT_CHECK(rm.AllocShort(0x80, &object, abi::kMemoryLocal, &params, sizeof params, 'G') == abi::kNoMemory);
    std::array<std::uint64_t, 2> wrapped{};
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', 0xd3, wrapped), &wrapped) == -1 && errno == EINVAL);
    std::array<std::byte, 40> odd{};
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', 0x2b, odd), &odd) == -1 && errno == ENOTTY);  // for the driver to refuse
    // A file that is not the driver's now might be one a moment later.
    const Rm other{memfd_create("other", 0)}, device{FakeDriver::Open(KernelBoundary::File::kDevice)}, none{-1};
    TENANT_CHECK(other.Memory(1, 1) == -ENOTTY);
    TENANT_CHECK(device.Memory(1, 1) == -EINVAL);
    TENANT_CHECK(none.Memory(1, 1) == -EBADF);
    return 0;
  });
  EXPECT_EQ(stage->driver->Objects(), 0u);
  EXPECT_EQ(stage->Refused().size(), 1u);
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

TEST_F(SupervisorHostileTest, ThirtyTwoBitProgramsAreRefused) {
  const pid_t probe = fork();
  if (probe == 0) _exit(Ioctl32(-1, 0, nullptr) == -EBADF ? 0 : 1);
  int status = -1;
  waitpid(probe, &status, 0);
  if (status != 0) GTEST_SKIP() << "this kernel runs no 32-bit system calls";
  RunTenant([] {
    auto* low = static_cast<abi::AllocShort*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    TENANT_CHECK(Ioctl32(FakeDriver::Open(), _IOWR('F', 0x2b, abi::AllocShort), low) == -EPERM);
    TENANT_CHECK(Ioctl32(-1, _IOWR('F', 0x4e, abi::AllocShort), low) == -EBADF);
    return 0;
  });
}
#endif

TEST_F(SupervisorHostileTest, GarbageIsAnsweredAndHurtsNobody) {
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    void* const nowhere = reinterpret_cast<void*>(0x10);
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', 0x2b, abi::Alloc), nowhere) == -1 && errno == EFAULT);
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', 0x2b, abi::Alloc), UINT64_MAX) == -1 && errno == EFAULT);
    std::uint32_t object = 1;
    TENANT_CHECK(rm.Alloc(1, &object, abi::kMemoryLocal, nowhere, 128) == -EFAULT);
    TENANT_CHECK(rm.Alloc(1, &object, abi::kMemoryLocal, nowhere, UINT32_MAX) == -EINVAL);
    TENANT_CHECK(rm.Control(1, abi::kDisableChannels, nowhere, 536) == abi::kInsufficientPermissions);
    // Params that end at the end of what is mapped.
    const auto page_bytes = static_cast<std::size_t>(getpagesize());
    auto* page = static_cast<std::byte*>(
        mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(page + page_bytes, page_bytes);
    auto* params = reinterpret_cast<abi::MemoryParams*>(page + page_bytes - sizeof(abi::MemoryParams));
    params->size = 2 * kMiB;
    TENANT_CHECK(rm.Alloc(1, &object, abi::kMemoryLocal, params, 0) == 0);
    // An answer that cannot be written.
    params->size = 3 * kMiB;
    mprotect(page, page_bytes, PROT_READ);
    object = 2;
    TENANT_CHECK(rm.Alloc(1, &object, abi::kMemoryLocal, params, sizeof *params) == -EFAULT);
    TENANT_CHECK(rm.Memory(3, 8 * kMiB) == 0);
    return 0;
  });
}

TEST_F(SupervisorHostileTest, TheLogIsNotFlooded) {
  constexpr std::uint64_t kRefusals = 2000;
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    std::uint8_t stop = 1;
    for (std::uint64_t i = 0; i < kRefusals; ++i) {
      TENANT_CHECK(rm.Control(1, 0x20801117, &stop, 1) == abi::kInsufficientPermissions);
    }
    return 0;
  });
  // However long it took: each is told of or counted.
  std::uint64_t told = 0, left_out = 0;
  for (const std::string& line : stage->Refused()) {
    unsigned long more = 0;
    if (std::sscanf(line.c_str(), "each of %lu more requests", &more) == 1) {
      left_out += more;
    } else {
      ++told;
    }
  }
  EXPECT_EQ(told + left_out, kRefusals);
  EXPECT_GE(told, 1u);
  EXPECT_LT(told, kRefusals / 2);
  EXPECT_EQ(stage->supervisor->Counts().refused, kRefusals);
}

TEST_F(SupervisorHostileTest, OthersClientsAreNotItsOwn) {
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
  Stage stage(10 * kMiB);
  stage.Serve(first);
  const pid_t pid = second.Pid();
  EXPECT_EQ(stage.Run(second), 0);
  EXPECT_TRUE(stage.Events(pid).empty());
  EXPECT_EQ(stage.Held(first.Pid()), 2 * kMiB);
  close(go[0]);
  close(go[1]);
}

TEST_F(SupervisorHostileTest, KilledInTheMiddleOfACall) {
  Tenant tenant([] {
    const Rm rm{FakeDriver::Open()};
    rm.Memory(1, 4 * kMiB);
    return __LINE__;
  });
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

TEST_F(SupervisorHostileTest, WithoutItsFirstThread) {
  RunTenant([] {
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
  EXPECT_EQ(stage->MostHeld(), 2 * kMiB);
  EXPECT_EQ(stage->Held(), 0u);
}

TEST_F(SupervisorHostileTest, AThreadThatChangesTheArgumentsGainsNothing) {
  RunTenant([] {
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
  EXPECT_LE(stage->driver->MostBytesInUse(), 10 * kMiB);
  EXPECT_LE(stage->MostHeld(), 10 * kMiB);
  EXPECT_EQ(stage->Held(), 0u);
  EXPECT_EQ(stage->driver->BytesInUse(), 0u);
}

// A newer driver's larger requests keep what this code knows at their beginning.
TEST_F(SupervisorHostileTest, LargerRequestsPassButNotWhatIsForbiddenInThem) {
  RunTenant([] {
    const Rm rm{FakeDriver::Open()};
    struct {
      abi::Control control;
      std::uint64_t more;
    } control{.control = {.client = rm.client, .command = 0x20801117, .status = 0xffff}, .more = 0};
    const auto ask = [&] { return ioctl(rm.file, _IOWR('F', abi::kControl, control), &control); };
    TENANT_CHECK(ask() == 0 && control.control.status == abi::kInsufficientPermissions);
    control.control.command = 0x20800101;
    TENANT_CHECK(ask() == -1 && errno == ENOTTY);
    TENANT_CHECK(ask() == -1 && errno == ENOTTY);
    struct {
      abi::Alloc alloc;
      std::uint64_t more;
    } alloc{.alloc = {.root = rm.client, .cls = 0xc2, .status = 0xffff}, .more = 0};
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', abi::kAlloc, alloc), &alloc) == 0);
    TENANT_CHECK(alloc.alloc.status == abi::kInsufficientPermissions);
    alloc.alloc.cls = abi::kMemoryLocal;
    TENANT_CHECK(ioctl(rm.file, _IOWR('F', abi::kAlloc, alloc), &alloc) == -1 && errno == ENOTTY);
    return 0;
  });
  EXPECT_EQ(stage->supervisor->Counts().unknown, 3u);
  EXPECT_EQ(stage->Unknown(), (std::vector<std::string>{"request 0x2a of 40 bytes", "request 0x2b of 56 bytes"}));
}

// The kernel goes by the number alone, so another type byte must not help.
TEST_F(SupervisorHostileTest, MemoryByTheDisplayDriverIsRefused) {
  RunTenant([] {
    const int display = FakeDriver::Open(KernelBoundary::File::kDisplay), other = FakeDriver::Open();
    std::array<std::uint64_t, 4> argument{};
    for (const char type : {'d', 'x'}) {
      for (const unsigned number : {0x4bU, 0xb2U}) {
        const auto request = _IOC(_IOC_READ | _IOC_WRITE, type, number, sizeof argument);
        TENANT_CHECK(ioctl(display, request, argument.data()) == -1 && errno == EPERM);
        TENANT_CHECK(ioctl(other, request, argument.data()) == -1 && errno == ENOTTY);
        TENANT_CHECK(ioctl(-1, request, argument.data()) == -1 && errno == EBADF);
      }
      TENANT_CHECK(ioctl(display, _IOWR('d', 0x41, argument), argument.data()) == -1 && errno == ENOTTY);
    }
    return 0;
  });
  EXPECT_EQ(stage->supervisor->Counts().refused, 4u);
  EXPECT_FALSE(stage->Refused().empty());
}

}  // namespace
}  // namespace tessera::guard
