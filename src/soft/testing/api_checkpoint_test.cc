// Checkpoints of another process, and what becomes of it.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/testing/wait_until.h"
#include "soft/shared/steering.h"
#include "soft/shared/test_process.h"
#include "soft/testing/test_api.h"
#include "soft/testing/test_peer.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// Says what a Peer that is made meanwhile has for its checkpoints.
class WithSettings {
 public:
  explicit WithSettings(const char* text) { setenv("TESSERA_SOFT_CHECKPOINT", text, 1); }
  ~WithSettings() { unsetenv("TESSERA_SOFT_CHECKPOINT"); }
};

class ApiCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cuInit(0));
    auto state = SharedState::Attach(SharedState::DefaultPath(), "");
    ASSERT_TRUE(state);
    state_ = std::move(*state);
    ASSERT_EQ(Used(0), 0u);
    ASSERT_EQ(Used(1), 0u);
  }
  // Whatever became of the programs, nothing is left of them.
  void TearDown() override {
    EXPECT_EQ(Used(0), 0u);
    EXPECT_EQ(Used(1), 0u);
  }

  std::uint64_t Used(int device) { return state_->UsedBytes(device); }
  bool Shows(int device, pid_t pid) {
    const auto all = state_->Processes(device);
    return std::ranges::find(all, pid, &ProcessUse::pid) != all.end();
  }
  static CUprocessState StateOf(pid_t pid) {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    EXPECT_OK(cuCheckpointProcessGetState(pid, &state));
    return state;
  }
  static CUresult Lock(pid_t pid, unsigned timeout_ms = 0) {
    CUcheckpointLockArgs args = {.timeoutMs = timeout_ms};
    return cuCheckpointProcessLock(pid, &args);
  }
  static CUresult Checkpoint(pid_t pid) { return cuCheckpointProcessCheckpoint(pid, nullptr); }
  static CUresult Unlock(pid_t pid) { return cuCheckpointProcessUnlock(pid, nullptr); }
  CUuuid Uuid(int device) const {
    CUuuid uuid;
    std::ranges::copy(state_->Uuid(device), uuid.bytes);
    return uuid;
  }
  CUresult Restore(pid_t pid, std::vector<CUcheckpointGpuPair> pairs) const {
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs.data(), .gpuPairsCount = static_cast<unsigned>(pairs.size())};
    return cuCheckpointProcessRestore(pid, &args);
  }
  CUresult RestoreOnOther(pid_t pid) const { return Restore(pid, {{Uuid(0), Uuid(1)}, {Uuid(1), Uuid(0)}}); }
  CUresult RestoreOnSame(pid_t pid) const { return Restore(pid, {}); }
  static std::string NextRound(Peer& peer) {
    peer.Say();
    return peer.Line();
  }

  std::unique_ptr<SharedState> state_;
};

class ApiCheckpointMoves : public ApiCheckpoint, public testing::WithParamInterface<const char*> {};

TEST_P(ApiCheckpointMoves, ProgramGoesOnOnTheOtherGpu) {
  Peer peer("work", GetParam());
  ASSERT_EQ(peer.Line(), "ready");
  EXPECT_EQ(NextRound(peer), "1");
  const pid_t pid = peer.pid();
  const std::uint64_t used = Used(0);
  const std::string kind = GetParam();
  EXPECT_GE(used, kTestContext + (kind == "absent" ? 0 : kWorkerBytes));
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_RUNNING);

  ASSERT_OK(Lock(pid));
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_LOCKED);
  peer.Say();  // its calls wait until the end
  EXPECT_EQ(Used(0), used);
  ASSERT_OK(Checkpoint(pid));
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_CHECKPOINTED);
  // A descriptor that somebody has keeps its memory on the device, and only that.
  const std::uint64_t stays = kind == "shared" ? kWorkerBytes : 0;
  EXPECT_EQ(Used(0), stays);
  if (stays == 0) EXPECT_FALSE(Shows(0, pid));
  EXPECT_EQ(Used(1), 0u);
  ASSERT_OK(RestoreOnOther(pid));
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_LOCKED);
  EXPECT_EQ(Used(1), used);
  EXPECT_TRUE(Shows(1, pid));
  EXPECT_FALSE(peer.HasLine());
  ASSERT_OK(Unlock(pid));
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_RUNNING);
  EXPECT_EQ(peer.Line(), "2");
  EXPECT_EQ(NextRound(peer), "3");

  // Its descriptor is closed now.
  WaitUntil([&] { return Used(0) == 0; });

  // And back: what is there now goes, not what was there at first.
  ASSERT_OK(Lock(pid));
  ASSERT_OK(Checkpoint(pid));
  EXPECT_EQ(Used(1), 0u);
  ASSERT_OK(RestoreOnOther(pid));
  ASSERT_OK(Unlock(pid));
  EXPECT_EQ(Used(0), used);
  EXPECT_EQ(NextRound(peer), "4");
}

INSTANTIATE_TEST_SUITE_P(Kinds, ApiCheckpointMoves, testing::Values("device", "own", "shared", "absent"),
                         [](const auto& kind) { return kind.param; });

TEST_F(ApiCheckpoint, StepsWantTheirStates) {
  Peer peer("work", "device");
  ASSERT_EQ(peer.Line(), "ready");
  const pid_t pid = peer.pid();
  EXPECT_EQ(Checkpoint(pid), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(RestoreOnSame(pid), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Unlock(pid), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_OK(Lock(pid));
  EXPECT_EQ(Lock(pid), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(RestoreOnSame(pid), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_OK(Checkpoint(pid));
  EXPECT_EQ(Lock(pid), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Checkpoint(pid), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Unlock(pid), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_OK(RestoreOnSame(pid));
  EXPECT_EQ(RestoreOnSame(pid), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_OK(Unlock(pid));
  EXPECT_EQ(NextRound(peer), "1");
}

TEST_F(ApiCheckpoint, NoSuchProcess) {
  const auto refused = [&](pid_t pid) {
    CUprocessState state;
    int thread = 0;
    EXPECT_EQ(cuCheckpointProcessGetState(pid, &state), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuCheckpointProcessGetRestoreThreadId(pid, &thread), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Lock(pid), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Checkpoint(pid), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(RestoreOnSame(pid), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Unlock(pid), CUDA_ERROR_INVALID_VALUE);
  };
  refused(0);
  refused(-1);
  // One that looks at the soft GPUs as a daemon does, and one that has ended.
  TestProcess looks([](TestProcess::Peer& parent) {
    const auto state = SharedState::Attach(SharedState::DefaultPath(), "");
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(looks.Hear());
  refused(looks.pid());
  Peer peer("work", "device");
  ASSERT_EQ(peer.Line(), "ready");
  int thread = 0;
  EXPECT_OK(cuCheckpointProcessGetRestoreThreadId(peer.pid(), &thread));
  EXPECT_EQ(access(("/proc/" + std::to_string(peer.pid()) + "/task/" + std::to_string(thread)).c_str(), F_OK), 0);
  peer.Kill();
  refused(peer.pid());
}

TEST_F(ApiCheckpoint, PairsAreAPermutationOfAllGpus) {
  Peer peer("work", "device");
  ASSERT_EQ(peer.Line(), "ready");
  const pid_t pid = peer.pid();
  ASSERT_OK(Lock(pid));
  ASSERT_OK(Checkpoint(pid));
  EXPECT_EQ(Restore(pid, {{Uuid(0), Uuid(1)}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Restore(pid, {{Uuid(0), Uuid(1)}, {Uuid(1), Uuid(1)}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Restore(pid, {{Uuid(0), Uuid(1)}, {Uuid(0), Uuid(0)}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Restore(pid, {{Uuid(0), CUuuid{}}, {Uuid(1), Uuid(0)}}), CUDA_ERROR_INVALID_VALUE);
  CUcheckpointRestoreArgs no_pairs = {.gpuPairs = nullptr, .gpuPairsCount = 2};
  EXPECT_EQ(cuCheckpointProcessRestore(pid, &no_pairs), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_CHECKPOINTED);
  ASSERT_OK(Restore(pid, {{Uuid(1), Uuid(0)}, {Uuid(0), Uuid(1)}}));
  ASSERT_OK(Unlock(pid));
  EXPECT_TRUE(Shows(1, pid));
  EXPECT_EQ(NextRound(peer), "1");
}

TEST_F(ApiCheckpoint, LockWaitsForWork) {
  Peer peer("spin", "");
  ASSERT_EQ(peer.Line(), "runs");
  EXPECT_EQ(Lock(peer.pid(), 20), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(StateOf(peer.pid()), CU_PROCESS_STATE_RUNNING);
  // Who wants it however long it takes, and is killed, keeps nobody waiting.
  Peer asks("lock", std::to_string(peer.pid()));
  ASSERT_EQ(asks.Line(), "asks");
  asks.Kill();
  EXPECT_EQ(Lock(peer.pid(), 20), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(StateOf(peer.pid()), CU_PROCESS_STATE_RUNNING);
  peer.Kill();
}

// As with driver 580: such calls do not wait, and read memory that is gone.
TEST_F(ApiCheckpoint, QueryOfASavedProgramIsItsEnd) {
  for (const bool saved : {false, true}) {
    Peer peer("query", "");
    ASSERT_EQ(peer.Line(), "ready");
    ASSERT_OK(Lock(peer.pid()));
    if (saved) ASSERT_OK(Checkpoint(peer.pid()));
    peer.Say();
    if (!saved) ASSERT_OK(Unlock(peer.pid()));
    EXPECT_EQ(peer.AwaitEnd(), saved ? SIGSEGV : 0);
  }
}

TEST_F(ApiCheckpoint, HostMemoryIsTheEndOfAProgram) {
  Peer peer("work", "host");
  ASSERT_EQ(peer.Line(), "ready");
  EXPECT_EQ(NextRound(peer), "1");
  const pid_t pid = peer.pid();
  ASSERT_OK(Lock(pid));
  peer.Say();
  ASSERT_OK(Checkpoint(pid));
  EXPECT_EQ(RestoreOnSame(pid), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_FAILED);
  EXPECT_EQ(peer.Line(), "CUDA_ERROR_UNKNOWN");
  EXPECT_EQ(NextRound(peer), "CUDA_ERROR_UNKNOWN");
  EXPECT_EQ(RestoreOnSame(pid), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Unlock(pid), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Used(0), 0u);
}

// Whether it is memory of the host or of a device.
TEST_F(ApiCheckpoint, ImportedMemoryIsTheEndOfAProgram) {
  for (const CUmemLocationType type : {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_DEVICE}) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {type, 0}};
    CUmemGenericAllocationHandle memory = 0;
    ASSERT_OK(cuMemCreate(&memory, kWorkerBytes, &properties, 0));
    int file = -1;
    ASSERT_OK(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const UniqueFd owned(file);
    {
      Peer peer("work", "imported", {file});
      ASSERT_EQ(peer.Line(), "ready");
      EXPECT_EQ(NextRound(peer), "1");
      const pid_t pid = peer.pid();
      ASSERT_OK(Lock(pid));
      ASSERT_OK(Checkpoint(pid));
      EXPECT_EQ(RestoreOnOther(pid), CUDA_ERROR_NOT_SUPPORTED);
      EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_FAILED);
      EXPECT_EQ(NextRound(peer), "CUDA_ERROR_NOT_SUPPORTED");
    }
    ASSERT_OK(cuMemRelease(memory));
  }
}

TEST_F(ApiCheckpoint, ManagedMemoryIsTheEndOfAProgram) {
  Peer peer("work", "managed");
  ASSERT_EQ(peer.Line(), "ready");
  ASSERT_OK(Lock(peer.pid()));
  EXPECT_EQ(Checkpoint(peer.pid()), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(StateOf(peer.pid()), CU_PROCESS_STATE_FAILED);
  EXPECT_EQ(NextRound(peer), "CUDA_ERROR_NOT_SUPPORTED");
}

TEST_F(ApiCheckpoint, GpuWithoutRoomLeavesTheCheckpoint) {
  Peer peer("work", "own");
  ASSERT_EQ(peer.Line(), "ready");
  const pid_t pid = peer.pid();
  const std::uint64_t all_but_a_little = kTestMemory - kTestContext;
  ASSERT_TRUE(state_->Charge(1, all_but_a_little));
  ASSERT_OK(Lock(pid));
  ASSERT_OK(Checkpoint(pid));
  EXPECT_EQ(RestoreOnOther(pid), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(Used(1), all_but_a_little);
  ASSERT_OK(RestoreOnSame(pid));
  ASSERT_OK(Unlock(pid));
  EXPECT_EQ(NextRound(peer), "1");
  state_->Uncharge(1, all_but_a_little);
}

TEST_F(ApiCheckpoint, KilledInEachStateLeavesNothing) {
  for (int steps = 0; steps <= 4; ++steps) {
    Peer peer("work", "own");
    ASSERT_EQ(peer.Line(), "ready");
    const pid_t pid = peer.pid();
    if (steps > 0) ASSERT_OK(Lock(pid));
    if (steps > 1) ASSERT_OK(Checkpoint(pid));
    if (steps > 2) ASSERT_OK(RestoreOnOther(pid));
    if (steps > 3) ASSERT_OK(Unlock(pid));
    peer.Kill();
    EXPECT_EQ(Used(0), 0u) << steps;
    EXPECT_EQ(Used(1), 0u) << steps;
    EXPECT_FALSE(Shows(0, pid) || Shows(1, pid)) << steps;
  }
}

TEST_F(ApiCheckpoint, ChannelsAreNewOnes) {
  Peer peer("work", "device");
  ASSERT_EQ(peer.Line(), "ready");
  const pid_t pid = peer.pid();
  ASSERT_OK(Lock(pid));
  ASSERT_TRUE(SetFrozen(*state_, 0, pid, Frozen::kAll));
  ASSERT_TRUE(SetSlice(*state_, 0, pid, kMillisecond));
  ASSERT_OK(Checkpoint(pid));
  ASSERT_OK(RestoreOnSame(pid));
  ASSERT_OK(Unlock(pid));
  EXPECT_EQ(*SliceOf(*state_, 0, pid), state_->spec().slice);
  EXPECT_EQ(NextRound(peer), "1");
}

// Of two programs, each on its device, one goes to the other's.
TEST_F(ApiCheckpoint, ProgramsMeetOnOneGpu) {
  Peer a("work", "device");
  ASSERT_EQ(a.Line(), "ready");
  Peer b("work", "device");
  ASSERT_EQ(b.Line(), "ready");
  const std::uint64_t each = Used(0) / 2;
  ASSERT_OK(Lock(b.pid()));
  ASSERT_OK(Checkpoint(b.pid()));
  EXPECT_EQ(Used(0), each);
  EXPECT_EQ(NextRound(a), "1");
  ASSERT_OK(RestoreOnOther(b.pid()));
  ASSERT_OK(Unlock(b.pid()));
  EXPECT_EQ(NextRound(b), "1");
  EXPECT_EQ(Used(0), each);
  EXPECT_EQ(Used(1), each);
  EXPECT_EQ(NextRound(a), "2");
}

// A process on both GPUs, which asks for its own steps.
TEST_F(ApiCheckpoint, ProcessOnTwoGpusChangesThem) {
  CUcontext contexts[2] = {};
  CUdeviceptr memory[2] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    ASSERT_OK(cuCtxSetCurrent(contexts[i]));
    ASSERT_OK(cuMemAlloc_v2(&memory[i], (2u << i) << 20));
    ASSERT_OK(cuMemsetD8_v2(memory[i], static_cast<unsigned char>(i + 1), 1 << 20));
  }
  const std::uint64_t before[2] = {Used(0), Used(1)};
  ASSERT_NE(before[0], before[1]);
  for (int round = 1; round <= 2; ++round) {
    ASSERT_OK(Lock(getpid()));
    ASSERT_OK(Checkpoint(getpid()));
    EXPECT_EQ(Used(0) + Used(1), 0u);
    ASSERT_OK(RestoreOnOther(getpid()));
    ASSERT_OK(Unlock(getpid()));
    EXPECT_EQ(Used(0), before[round % 2]);
    EXPECT_EQ(Used(1), before[1 - round % 2]);
    for (int i = 0; i < 2; ++i) {
      unsigned char byte = 0;
      ASSERT_OK(cuCtxSetCurrent(contexts[i]));
      ASSERT_OK(cuMemcpyDtoH_v2(&byte, memory[i], 1));
      EXPECT_EQ(byte, i + 1);
    }
  }
  ASSERT_OK(cuCtxSetCurrent(nullptr));
  for (int i = 0; i < 2; ++i) ASSERT_OK(cuDevicePrimaryCtxReset_v2(i));
}

// Killed in the middle of a step, a program answers nobody.
TEST_F(ApiCheckpoint, KilledInEachStepLeavesNothing) {
  const char* const faults[] = {"soft.locked", "soft.checkpoint.taken", "soft.checkpointed", "soft.restore.put",
                                "soft.restored"};
  for (const char* fault : faults) {
    setenv("TESSERA_FAULT", fault, 1);
    Peer peer("work", "shared");
    unsetenv("TESSERA_FAULT");
    ASSERT_EQ(peer.Line(), "ready");
    CUresult result = Lock(peer.pid());
    if (result == CUDA_SUCCESS) result = Checkpoint(peer.pid());
    if (result == CUDA_SUCCESS) result = RestoreOnOther(peer.pid());
    EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE) << fault;
    EXPECT_EQ(Used(0), 0u) << fault;
    EXPECT_EQ(Used(1), 0u) << fault;
  }
}

TEST_F(ApiCheckpoint, StepsLastAsATestWants) {
  const WithSettings settings("lock=5ms,checkpoint=20ms+1GB/s,restore=10ms,unlock=5ms");
  Peer peer("work", "own");
  ASSERT_EQ(peer.Line(), "ready");
  const auto lasts = [](auto step) {
    const Nanos begin = MonotonicNow();
    EXPECT_OK(step());
    return MonotonicNow() - begin;
  };
  EXPECT_GE(lasts([&] { return Lock(peer.pid()); }), 5 * kMillisecond);
  const std::uint64_t bytes = Used(0);
  const Nanos wanted = 20 * kMillisecond + static_cast<Nanos>(bytes) * kSecond / 1'000'000'000;
  EXPECT_GE(lasts([&] { return Checkpoint(peer.pid()); }), wanted);
  EXPECT_GE(lasts([&] { return RestoreOnSame(peer.pid()); }), 10 * kMillisecond);
  EXPECT_GE(lasts([&] { return Unlock(peer.pid()); }), 5 * kMillisecond);
  EXPECT_EQ(NextRound(peer), "1");
}

TEST_F(ApiCheckpoint, FailuresThatATestWants) {
  const WithSettings settings(
      "lock=CUDA_ERROR_NOT_READY,checkpoint=CUDA_ERROR_OUT_OF_MEMORY,restore=CUDA_ERROR_UNKNOWN:always");
  Peer peer("work", "device");
  ASSERT_EQ(peer.Line(), "ready");
  const pid_t pid = peer.pid();
  EXPECT_EQ(Lock(pid), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(NextRound(peer), "1");
  ASSERT_OK(Lock(pid));
  EXPECT_EQ(Checkpoint(pid), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_LOCKED);
  ASSERT_OK(Checkpoint(pid));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(RestoreOnSame(pid), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_CHECKPOINTED);
}

TEST_F(ApiCheckpoint, EndThatATestWants) {
  const WithSettings settings("restore=CUDA_ERROR_UNKNOWN:lost");
  Peer peer("work", "device");
  ASSERT_EQ(peer.Line(), "ready");
  ASSERT_OK(Lock(peer.pid()));
  ASSERT_OK(Checkpoint(peer.pid()));
  EXPECT_EQ(RestoreOnSame(peer.pid()), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(StateOf(peer.pid()), CU_PROCESS_STATE_FAILED);
  EXPECT_EQ(NextRound(peer), "CUDA_ERROR_UNKNOWN");
}

TEST_F(ApiCheckpoint, FoundByName) {
  for (const char* name :
       {"cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
        "cuCheckpointProcessUnlock", "cuCheckpointProcessGetState", "cuCheckpointProcessGetRestoreThreadId"}) {
    void* function = nullptr;
    EXPECT_OK(cuGetProcAddress(name, &function, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT)) << name;
    EXPECT_NE(function, nullptr) << name;
  }
}

}  // namespace
}  // namespace tessera::soft
