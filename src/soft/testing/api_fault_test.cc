// Failures that end a context or a process: faults of kernels, forks, exits with work in the queue. On a real GPU a
// fault ends the whole process's use of the device, so there each test needs a process of its own, as CTest gives it.
#include <sys/wait.h>

#include <functional>

#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

using FaultTest = DriverTest;

TEST_F(FaultTest, AnIllegalAddressEndsTheContext) {
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  const CUdeviceptr words = NewWords(1);
  Gate gate;
  gate.Hold(stream);  // else it may have failed before the next call
  EXPECT_OK(Launch(Kernel("bad_address"), stream));
  EXPECT_OK(d.cuStreamWaitEvent(nullptr, event, 0));
  gate.Open();
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuStreamSynchronize(stream));
  std::uint32_t word = 0;
  CUdeviceptr address = 0;
  CUstream made = nullptr;
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuStreamQuery(nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuEventQuery(event));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuEventRecord(event, stream));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuMemAlloc_v2(&address, 4));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuMemcpyDtoH_v2(&word, words, 4));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuStreamCreate(&made, 0));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuCtxSynchronize());
}

TEST_F(FaultTest, ATrapEndsTheContext) {
  EXPECT_OK(Launch(Kernel("trapped"), nullptr));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, d.cuCtxSynchronize());
}

TEST_F(FaultTest, CallbacksHearOfIt) {
  const CUstream stream = NewStream();
  std::atomic<CUresult> heard = CUDA_SUCCESS;
  Gate gate;
  gate.Hold(stream);
  EXPECT_OK(Launch(Kernel("bad_address"), stream));
  EXPECT_OK(d.cuStreamAddCallback(
      stream, [](CUstream, CUresult status, void* data) { *static_cast<std::atomic<CUresult>*>(data) = status; },
      &heard, 0));
  gate.Open();
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, d.cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, heard);
}

TEST_F(FaultTest, HandlesOfADestroyedContextAreInvalid) {
  CUcontext other = nullptr;
  ASSERT_OK(d.cuCtxCreate_v2(&other, 0, device));
  const CUstream stream = NewStream();
  EXPECT_OK(d.cuCtxDestroy_v2(other));
  EXPECT_OK(d.cuCtxSetCurrent(context));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuStreamQuery(stream));
}

TEST_F(FaultTest, DestroyingAContextWaitsForItsWork) {
  Gate gate;
  CUcontext other = nullptr;
  ASSERT_OK(d.cuCtxCreate_v2(&other, 0, device));
  const CUstream stream = NewStream();
  std::atomic<bool> ran = false;
  gate.Hold(stream);
  EXPECT_OK(d.cuLaunchHostFunc(stream, [](void* data) { *static_cast<std::atomic<bool>*>(data) = true; }, &ran));
  gate.Open();
  EXPECT_OK(d.cuCtxDestroy_v2(other));
  EXPECT_TRUE(ran);
  EXPECT_OK(d.cuCtxSetCurrent(context));
}

// The end of a child of fork or of a new program: its exit status, or minus the signal that ended it.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(FaultTest, AForkedChildHasNoDriver) {
  const CUstream stream = NewStream();
  Gate gate;
  gate.Hold(stream);
  EXPECT_EQ(InChild([&] {
              CUdeviceptr address = 0;
              const CUresult results[] = {d.cuInit(0), d.cuCtxSynchronize(), d.cuMemAlloc_v2(&address, 4),
                                          d.cuStreamQuery(nullptr)};
              for (const CUresult result : results) {
                if (result != CUDA_ERROR_NOT_INITIALIZED) return 1;
              }
              return 0;
            }),
            0);
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(stream));
}

// These need a process of their own that has not used the driver: the test program, run again. See below.
class ExitTest : public testing::TestWithParam<const char*> {};

TEST_P(ExitTest, WorkInTheQueueDoesNotHoldUpTheEnd) {
  EXPECT_EQ(InChild([] {
              const std::string filter = std::string("--gtest_filter=ExitChild.") + GetParam();
              execl("/proc/self/exe", "exit_child", filter.c_str(), "--gtest_also_run_disabled_tests",
                    "--gtest_brief=1", nullptr);
              return 1;
            }),
            0);
}
INSTANTIATE_TEST_SUITE_P(All, ExitTest, testing::Values("DISABLED_Kernel", "DISABLED_Wait", "DISABLED_HostFunction"));

// Exits normally, with static destructors and exit handlers, while work runs that never ends.
class ExitChild : public DriverTest {
 protected:
  void TearDown() override {}
};

TEST_F(ExitChild, DISABLED_Kernel) {
  CUdeviceptr flag = NewWords(1);
  void* parameters[] = {&flag};
  EXPECT_OK(Launch(Kernel("wait_for"), NewStream(), parameters));
  EXPECT_OK(Launch(Kernel("empty"), NewStream()));
  std::exit(HasFailure() ? 1 : 0);
}

TEST_F(ExitChild, DISABLED_Wait) {
  const CUstream stream = NewStream();
  EXPECT_OK(d.cuStreamWaitValue32_v2(stream, NewWords(1), 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_OK(Launch(Kernel("empty"), stream));
  std::exit(HasFailure() ? 1 : 0);
}

TEST_F(ExitChild, DISABLED_HostFunction) {
  EXPECT_OK(d.cuLaunchHostFunc(NewStream(), [](void*) { pause(); }, nullptr));
  std::exit(HasFailure() ? 1 : 0);
}

}  // namespace
}  // namespace tessera::soft
