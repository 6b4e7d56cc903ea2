// Programs behind the gate that fork, share and close files, and end.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "guard/supervisor/supervisor.h"
#include "guard/testing/stage.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

class SupervisorTreeTest : public GatedProgramTest {};

// Runs `body` in a child of a body; its result.
template <typename Body>
int InChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() == 0 ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(SupervisorTreeTest, SharedMemoryStaysUntilTheLastHandle) {
  RunTenant([] {
    const Rm parent{FakeDriver::Open(), 0xc1d00001};
    TENANT_CHECK(parent.Memory(1, 6 * kMiB) == 0);
    const int status = InChild([&] {
      const Rm child{FakeDriver::Open(), 0xc1d00002};
      TENANT_CHECK(child.Dup(7, parent.client, 1) == 0);
      TENANT_CHECK(parent.Free(1) == 0);  // on the inherited file
      TENANT_CHECK(child.Memory(8, 6 * kMiB) == abi::kNoMemory);
      TENANT_CHECK(child.Free(7) == 0);
      TENANT_CHECK(child.Memory(8, 6 * kMiB) == 0);
      return 0;
    });
    TENANT_CHECK(status == 0);
    TENANT_CHECK(parent.Memory(1, 10 * kMiB) == 0);  // the child's went with it
    return 0;
  });
  EXPECT_EQ(stage->Held(), 0u);
}

TEST_F(SupervisorTreeTest, WhatWasClosedIsFoundBeforeARefusal) {
  RunTenant([] {
    const Rm first{FakeDriver::Open(), 0xc1d00001};
    TENANT_CHECK(first.Memory(1, 8 * kMiB) == 0);
    close(first.file);
    const Rm second{FakeDriver::Open(), 0xc1d00002};
    TENANT_CHECK(second.Memory(1, 8 * kMiB) == 0);
    return 0;
  });
}

TEST_F(SupervisorTreeTest, ASearchWithoutDescriptorsEndsNobody) {
  int said[2], go[2];
  ASSERT_EQ(pipe(said), 0);
  ASSERT_EQ(pipe(go), 0);
  Tenant tenant([&] {
    const Rm first{FakeDriver::Open(), 0xc1d00001};
    const Rm second{FakeDriver::Open(), 0xc1d00002};
    TENANT_CHECK(first.Memory(1, 8 * kMiB) == 0);
    close(first.file);
    TENANT_CHECK(second.Memory(1, 8 * kMiB) == abi::kNoMemory);  // nobody could see that it is closed
    char byte = 'x';
    TENANT_CHECK(write(said[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
    TENANT_CHECK(second.Memory(1, 8 * kMiB) == 0);
    return 0;
  });
  close(said[1]);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  Stage stage(10 * kMiB);
  int charges = 0;
  stage.on_charge = [&] {
    if (++charges != 2) return;
    // From now on no number is free.
    const int lowest = dup(go[0]);
    close(lowest);
    const rlimit full{.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &full);
  };
  const std::uint64_t id = stage.Serve(tenant);
  char byte = 'x';
  EXPECT_EQ(read(said[0], &byte, 1), 1);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(write(go[1], &byte, 1), 1);
  EXPECT_EQ(tenant.Wait(), 0);
  stage.WaitUntilEnded(id);
  EXPECT_EQ(stage.Held(), 0u);
  close(said[0]);
  close(go[0]);
  close(go[1]);
}

TEST_F(SupervisorTreeTest, AFileUnderAnotherNumberIsNotClosed) {
  RunTenant([] {
    const Rm first{FakeDriver::Open(), 0xc1d00001};
    TENANT_CHECK(first.Memory(1, 8 * kMiB) == 0);
    TENANT_CHECK(dup2(first.file, 200) == 200);
    close(first.file);
    const Rm second{FakeDriver::Open(), 0xc1d00002};
    TENANT_CHECK(second.Memory(1, 8 * kMiB) == abi::kNoMemory);
    return 0;
  });
}

// A user who forks more than the table of processes takes gains no memory by that.
TEST_F(SupervisorTreeTest, AForkThatIsOneTooManyKeepsItsParentsMemory) {
  Tenant tenant([] {
    const Rm first{FakeDriver::Open(), 0xc1d00001};
    TENANT_CHECK(first.Memory(1, 8 * kMiB) == 0);
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    close(first.file);
    const Rm second{FakeDriver::Open(), 0xc1d00002};
    const bool refused = second.Memory(1, 8 * kMiB) == abi::kNoMemory;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    TENANT_CHECK(refused);
    return 0;
  });
  Stage one(10 * kMiB, {}, std::make_shared<std::atomic<std::int64_t>>(1));
  EXPECT_EQ(one.Run(tenant), 0);
  EXPECT_EQ(one.Held(), 0u);
}

TEST_F(SupervisorTreeTest, AForkedChildKeepsItsParentsMemory) {
  // The child lives on with the file when its parent has ended.
  int done[2];
  ASSERT_EQ(pipe(done), 0);
  Tenant tenant([&] {
    const Rm rm{FakeDriver::Open(), 0xc1d00001};
    TENANT_CHECK(rm.Memory(1, 8 * kMiB) == 0);
    const pid_t parent = getpid();
    if (fork() == 0) {
      while (getppid() == parent) sched_yield();
      const Rm second{FakeDriver::Open(), 0xc1d00002};
      const bool refused = second.Memory(1, 8 * kMiB) == abi::kNoMemory;
      close(rm.file);
      const bool made = second.Memory(1, 2 * kMiB) == 0;
      const char answer = refused && made ? '1' : '0';
      _exit(write(done[1], &answer, 1) == 1 ? 0 : 1);
    }
    return 0;
  });
  Stage stage(10 * kMiB);
  const std::uint64_t id = stage.Serve(tenant);
  EXPECT_EQ(tenant.Wait(), 0);
  char answer = '0';
  EXPECT_EQ(read(done[0], &answer, 1), 1);
  EXPECT_EQ(answer, '1');
  stage.WaitUntilEnded(id);
  EXPECT_EQ(stage.Held(), 0u);
  close(done[0]);
  close(done[1]);
}

TEST_F(SupervisorTreeTest, AClientsNumberIsGivenOutAgain) {
  RunTenant([] {
    const Rm first{FakeDriver::Open(), 0xc1d00001};
    TENANT_CHECK(first.Memory(1, 8 * kMiB) == 0);
    TENANT_CHECK(first.Free(first.client) == 0);
    TENANT_CHECK(first.Memory(1, 8 * kMiB) == 0);
    return 0;
  });
}

TEST_F(SupervisorTreeTest, ThreeHundredProcesses) {
  constexpr int kProcesses = 300;
  RunTenant(
      [] {
        auto* failures = static_cast<std::atomic<int>*>(
            mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        for (int i = 0; i < kProcesses; ++i) {
          if (fork() != 0) continue;
          const Rm rm{FakeDriver::Open(), 0xc1d00000 + static_cast<std::uint32_t>(getpid())};
          for (int round = 0; round < 10; ++round) {
            if (rm.Memory(1, 2 * kMiB) != 0) ++*failures;
            if (rm.Control(1, abi::kGroupGetSlice, nullptr, 0) != -ENOTTY) ++*failures;
            if (rm.Free(1) != 0) ++*failures;
          }
          if (rm.Memory(2, 2 * kMiB) != 0) ++*failures;
          _exit(0);
        }
        while (wait(nullptr) > 0) {
        }
        TENANT_CHECK(*failures == 0);
        return 0;
      },
      kProcesses * 2 * kMiB);
  EXPECT_EQ(stage->Held(), 0u);
  EXPECT_GE(stage->supervisor->Counts().executed, kProcesses * 21u);
}

TEST_F(SupervisorTreeTest, ManyListeners) {
  constexpr int kListeners = 20;
  std::vector<std::unique_ptr<Tenant>> tenants;
  for (int i = 0; i < kListeners; ++i) {
    tenants.push_back(std::make_unique<Tenant>([i] {
      const Rm rm{FakeDriver::Open(), 0xc1d00000 + static_cast<std::uint32_t>(i)};
      TENANT_CHECK(rm.Memory(1, 2 * kMiB) == 0);
      TENANT_CHECK(rm.Memory(2, 2 * kMiB * kListeners) == abi::kNoMemory);
      return 0;
    }));
  }
  Stage stage(kListeners * 2 * kMiB);
  std::vector<std::uint64_t> ids;
  for (auto& tenant : tenants) ids.push_back(stage.Serve(*tenant));
  for (auto& tenant : tenants) EXPECT_EQ(tenant->Wait(), 0);
  for (const std::uint64_t id : ids) stage.WaitUntilEnded(id);
  EXPECT_EQ(stage.Held(), 0u);
}

}  // namespace
}  // namespace tessera::guard
