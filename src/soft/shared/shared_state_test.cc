#include "soft/shared/shared_state.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <fstream>
#include <set>
#include <vector>

#include "soft/shared/soft_gpu.h"
#include "soft/shared/steering.h"
#include "soft/shared/test_process.h"

namespace tessera::soft {
namespace {

TEST(SharedState, FirstOneDecides) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "2x1GiB,sms=4");
  EXPECT_EQ(state->spec().devices, 2);
  EXPECT_EQ(state->spec().multiprocessors, 4u);
  EXPECT_EQ(state->UsedBytes(0), 0u);
  const auto second = MustAttach(scratch.path(), "");
  EXPECT_EQ(second->spec(), state->spec());
}

TEST(SharedState, OtherSpecIsRefusedWhileInUse) {
  const ScratchState scratch;
  auto state = MustAttach(scratch.path(), "1GiB");
  const auto other = SharedState::Attach(scratch.path(), "2GiB");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, EEXIST);
  EXPECT_NE(other.error().message.find("1GiB, not 2GiB"), std::string::npos) << other.error().message;
  state.reset();
  EXPECT_EQ(MustAttach(scratch.path(), "2GiB")->spec().memory_bytes, 2 * kGiB);
}

TEST(SharedState, ChargeStopsAtCapacityExactly) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "2x1MiB");
  EXPECT_TRUE(state->Charge(0, kMiB - 1));
  EXPECT_FALSE(state->Charge(0, 2));
  EXPECT_TRUE(state->Charge(0, 1));
  EXPECT_FALSE(state->Charge(0, 1));
  EXPECT_TRUE(state->Charge(1, kMiB));
  EXPECT_FALSE(state->Charge(1, UINT64_MAX));
  state->Uncharge(0, 1);
  EXPECT_EQ(state->UsedBytes(0), kMiB - 1);
  EXPECT_TRUE(state->Charge(0, 1));
}

TEST(SharedState, CapacityIsSharedAndFreedOnKill) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "1GiB");
  TestProcess child([&](TestProcess::Peer& parent) {
    const auto mine = MustAttach(scratch.path(), "");
    EXPECT_TRUE(mine->Charge(0, 700 * kMiB));
    mine->AddContexts(0, 1);
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(child.Hear());
  EXPECT_FALSE(state->Charge(0, 400 * kMiB));
  const auto processes = state->Processes(0);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].pid, child.pid());
  EXPECT_EQ(processes[0].bytes, 700 * kMiB);
  EXPECT_EQ(processes[0].contexts, 1u);

  child.Kill();
  EXPECT_TRUE(state->Charge(0, 400 * kMiB));
  EXPECT_EQ(state->UsedBytes(0), 400 * kMiB);
}

// Memory of a killed process is free at once, not when its parent collects it.
TEST(SharedState, ZombieHoldsNothing) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "1GiB");
  TestProcess child([&](TestProcess::Peer& parent) {
    const auto mine = MustAttach(scratch.path(), "");
    EXPECT_TRUE(mine->Charge(0, kGiB));
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(child.Hear());
  EXPECT_EQ(state->UsedBytes(0), kGiB);
  child.Signal(SIGKILL);
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(state->UsedBytes(0), 0u);
}

// Three hold it: the charge passes on as one after the other lets go, is killed, and lets go.
TEST(SharedState, MemoryOfSeveralIsChargedOnceToTheEnd) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "1GiB");
  const std::uint64_t memory = state->NewMemory();
  EXPECT_NE(memory, state->NewMemory());
  const std::int32_t mine = state->Hold(0, memory, 700 * kMiB);
  ASSERT_NE(mine, kNoHold);
  const auto hold = [&](TestProcess::Peer& parent) {
    const auto theirs = MustAttach(scratch.path(), "");
    const std::int32_t held = theirs->Hold(0, memory, 700 * kMiB);
    EXPECT_NE(held, kNoHold);
    parent.Say();
    parent.Hear();
    theirs->LetGo(held);
    parent.Say();
    parent.Hear();
  };
  TestProcess first(hold);
  ASSERT_TRUE(first.Hear());
  TestProcess second(hold);
  ASSERT_TRUE(second.Hear());
  const auto charged = [&](pid_t pid) {
    const auto processes = state->Processes(0);
    EXPECT_EQ(processes.size(), 1u);
    return processes.size() == 1 && processes[0].pid == pid && processes[0].bytes == 700 * kMiB;
  };
  EXPECT_TRUE(charged(getpid()));
  state->LetGo(mine);
  EXPECT_TRUE(charged(first.pid()));
  EXPECT_FALSE(state->Charge(0, 400 * kMiB));
  first.Kill();
  EXPECT_TRUE(charged(second.pid()));
  EXPECT_EQ(state->UsedBytes(0), 700 * kMiB);
  second.Say();
  ASSERT_TRUE(second.Hear());
  EXPECT_EQ(state->UsedBytes(0), 0u);

  // No process holds it any more: it has to fit again.
  ASSERT_TRUE(state->Charge(0, 400 * kMiB));
  EXPECT_EQ(state->Hold(0, memory, 700 * kMiB), kNoHold);
}

TEST(SharedState, LastOneOutLeavesNothingBehind) {
  const ScratchState scratch;
  TestProcess child([&](TestProcess::Peer& parent) {
    const auto mine = MustAttach(scratch.path(), "1GiB");
    EXPECT_TRUE(mine->Charge(0, kGiB));
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(child.Hear());
  child.Kill();
  const auto state = MustAttach(scratch.path(), "4x2GiB");
  EXPECT_EQ(state->spec().devices, 4);
  EXPECT_EQ(state->UsedBytes(0), 0u);
}

TEST(SharedState, ManyStartAtOnce) {
  const ScratchState scratch;
  constexpr int kCount = 40;
  std::vector<std::unique_ptr<TestProcess>> children;
  for (int i = 0; i < kCount; ++i) {
    children.push_back(std::make_unique<TestProcess>([&](TestProcess::Peer& parent) {
      parent.Hear();
      const auto mine = MustAttach(scratch.path(), "1GiB");
      ASSERT_NE(mine, nullptr);
      EXPECT_TRUE(mine->Charge(0, kMiB));
      parent.Say();
      parent.Hear();
    }));
  }
  for (const auto& child : children) child->Say();
  for (const auto& child : children) ASSERT_TRUE(child->Hear());
  {
    const auto state = MustAttach(scratch.path(), "");
    EXPECT_EQ(state->UsedBytes(0), kCount * kMiB);
    EXPECT_EQ(state->Processes(0).size(), static_cast<std::size_t>(kCount));
  }
  for (const auto& child : children) child->Say();
  for (const auto& child : children) EXPECT_EQ(child->Wait(), 0);
}

TEST(SharedState, ForkedChildLeavesTheParentsSlotAlone) {
  const ScratchState scratch;
  auto state = MustAttach(scratch.path(), "1GiB");
  ASSERT_TRUE(state->Charge(0, kMiB));
  TestProcess child([&](TestProcess::Peer&) { state.reset(); });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(state->UsedBytes(0), kMiB);
}

TEST(SharedState, HalfMadeFileIsMadeAnew) {
  const ScratchState scratch;
  MustAttach(scratch.path(), "1GiB");
  std::fstream(scratch.path(), std::ios::in | std::ios::out).write("\0\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(MustAttach(scratch.path(), "2GiB")->spec().memory_bytes, 2 * kGiB);
}

TEST(SharedState, OtherVersionInUseIsRefused) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "1GiB");
  std::fstream(scratch.path(), std::ios::in | std::ios::out).write("OTHERVER", 8);
  const auto other = SharedState::Attach(scratch.path(), "1GiB");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, EPROTO);
  EXPECT_NE(other.error().hint.find("TESSERA_SOFT_NAME"), std::string::npos);
}

TEST(SharedState, DirectoryThatCannotBeWritten) {
  const auto state = SharedState::Attach("/proc/tessera-soft", "1GiB");
  ASSERT_FALSE(state);
  EXPECT_NE(state.error().Text().find("make /dev/shm writable"), std::string::npos) << state.error().Text();
}

TEST(SharedState, ItsUserMayOpenItToAll) {
  const auto mode = [](const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 0777;
  };
  const ScratchState scratch;
  MustAttach(scratch.path(), "1GiB");
  EXPECT_EQ(mode(scratch.path()), 0600u);
  setenv("TESSERA_SOFT_USER", std::to_string(geteuid()).c_str(), 1);
  MustAttach(scratch.path(), "1GiB");
  EXPECT_EQ(mode(scratch.path()), 0666u);
  const std::string own = SharedState::DefaultPath();

  // Another's is not made for it, and this user's is not taken for it.
  setenv("TESSERA_SOFT_USER", "4711", 1);
  EXPECT_EQ(SharedState::DefaultPath().find("/dev/shm/tessera-soft-4711"), 0u);
  EXPECT_NE(SharedState::DefaultPath(), own);
  const auto missing = SharedState::Attach(scratch.path() + "-none", "1GiB");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ENOENT);
  const auto taken = SharedState::Attach(scratch.path(), "1GiB");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, EPERM);
  unsetenv("TESSERA_SOFT_USER");
  EXPECT_EQ(SharedState::DefaultPath(), own);
}

// A file that cannot grow stands for a full /dev/shm: an error now, no SIGBUS later.
TEST(SharedState, NoRoomForTheState) {
  const ScratchState scratch;
  TestProcess child([&](TestProcess::Peer&) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small = {4096, 4096};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto state = SharedState::Attach(scratch.path(), "1GiB");
    ASSERT_FALSE(state);
    EXPECT_NE(state.error().Text().find("make room in /dev/shm"), std::string::npos) << state.error().Text();
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(MustAttach(scratch.path(), "1GiB")->UsedBytes(0), 0u);
}

TEST(SharedState, SymbolicLinkIsNotFollowed) {
  const ScratchState scratch;
  ASSERT_EQ(symlink("/dev/shm/somewhere-else", scratch.path().c_str()), 0);
  const auto state = SharedState::Attach(scratch.path(), "1GiB");
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().code, ELOOP);
}

TEST(SharedState, TransfersShareTheLink) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "2x1GiB,pcie=1GB/s");
  const Nanos before = MonotonicNow();
  const Nanos first = state->ReserveTransfer(0, CopyDirection::kToDevice, 1'000'000'000);
  const Nanos second = state->ReserveTransfer(0, CopyDirection::kToDevice, 500'000'000);
  EXPECT_GE(first, before + kSecond);
  EXPECT_EQ(second, first + kSecond / 2);
  // The other direction and the other device are free.
  EXPECT_LT(state->ReserveTransfer(0, CopyDirection::kToHost, 1'000'000), first);
  EXPECT_LT(state->ReserveTransfer(1, CopyDirection::kToDevice, 1'000'000), first);
}

// As a container is: with PIDs and a /proc of its own.
TEST(SharedState, KnowsProcessesOfInnerPidNamespaces) {
  if (geteuid() != 0) GTEST_SKIP() << "making a PID namespace needs root";
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "1GiB");
  ASSERT_TRUE(state->Charge(0, 5 * kMiB));
  TestProcess outer([&](TestProcess::Peer& parent) {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return;
    const pid_t inner = fork();
    if (inner == 0) {
      const bool own_proc = mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                            mount("proc", "/proc", "proc", 0, nullptr) == 0;
      const auto mine = own_proc ? MustAttach(scratch.path(), "") : nullptr;
      // Whom it cannot see it must not take for dead.
      if (mine && getpid() == 1 && mine->UsedBytes(0) == 5 * kMiB && mine->Charge(0, 7 * kMiB)) parent.Say();
      parent.Hear();
      _exit(0);
    }
    int status = 0;
    waitpid(inner, &status, 0);
    parent.Say();
    parent.Hear();
  });
  if (!outer.Hear()) GTEST_SKIP() << "no PID namespace can be had here";
  // A daemon in a container has fewer capabilities than its programs, and may not ask for their namespace.
  TestProcess weak([&](TestProcess::Peer&) {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
    ASSERT_EQ(syscall(SYS_capset, &header, none.data()), 0);
    EXPECT_EQ(MustAttach(scratch.path(), "")->UsedBytes(0), 12 * kMiB);
  });
  EXPECT_EQ(weak.Wait(), 0);
  pid_t inner = 0;
  for (const ProcessUse& use : state->Processes(0)) {
    if (use.bytes == 7 * kMiB) inner = use.pid;
  }
  EXPECT_GT(inner, 1);
  EXPECT_EQ(kill(inner, 0), 0);
  EXPECT_EQ(state->UsedBytes(0), 12 * kMiB);
  EXPECT_TRUE(SetSlice(*state, 0, inner, kMillisecond));
  kill(inner, SIGKILL);
  ASSERT_TRUE(outer.Hear());
  EXPECT_EQ(state->UsedBytes(0), 5 * kMiB);
  EXPECT_EQ(SetSlice(*state, 0, inner, kMillisecond).error().code, ESRCH);
}

TEST(SoftGpu, ListsDevicesAndTheirProcesses) {
  const ScratchState scratch;
  const auto state = MustAttach(scratch.path(), "2x1GiB,context=8MiB");
  ASSERT_TRUE(state->Charge(1, 5 * kMiB));
  const auto gpus = ListSoftGpus(*state);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].name, "Tessera Soft GPU");
  EXPECT_EQ(gpus[0].memory_bytes, kGiB);
  EXPECT_EQ(gpus[0].context_bytes, 8 * kMiB);
  EXPECT_TRUE(gpus[0].processes.empty());
  EXPECT_EQ(gpus[1].used_bytes, 5 * kMiB);
  ASSERT_EQ(gpus[1].processes.size(), 1u);
  EXPECT_EQ(gpus[1].processes[0].pid, getpid());
  EXPECT_EQ(gpus[0].uuid.size(), 40u);
  EXPECT_NE(gpus[0].uuid, gpus[1].uuid);
  EXPECT_EQ(gpus[0].uuid, ListSoftGpus(*state)[0].uuid);
}

}  // namespace
}  // namespace tessera::soft
