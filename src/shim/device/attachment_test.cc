// One GPU as the program uses it, through the trampolines and hooks, with a pacer that runs.
#include "shim/device/attachment.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/testing/wait_until.h"
#include "shim/device/in_call.h"
#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera;
using namespace tessera::cuda;

TESSERA_HOOK cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                            void**, void**);
TESSERA_HOOK cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
TESSERA_HOOK cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);
TESSERA_HOOK cuCtxDestroy_v2(CUcontext);
TESSERA_HOOK cuCtxSetCurrent(CUcontext);
TESSERA_HOOK cuCtxSynchronize();
TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
TESSERA_HOOK cuDevicePrimaryCtxRelease_v2(CUdevice);
TESSERA_HOOK cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
TESSERA_HOOK cuStreamEndCapture(CUstream, CUgraph*);

namespace tessera::shim {
namespace {

using wire::GateOrder;

class AttachmentTest : public ShimFixture {
 protected:
  // Sets the first contents of a page.
  void Begin(GateOrder order, std::uint64_t credit = 4 * kGiB) {
    Daemon().Set([=](FakeDaemon::Answers& answers) {
      answers.page = [=](wire::Page& page) {
        page.gate = order;
        page.memory_max = 8 * kGiB;
        page.memory_credit = static_cast<std::int64_t>(credit);
        page.memory_credit_keep = credit;
        page.idle_grace_ns = kMillisecond;
      };
    });
    ASSERT_EQ(cuCtxCreate_v2(&context, 0, device), CUDA_SUCCESS);
    Cuda().EndAtOnce(context);
  }
  CUresult Launch() { return cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); }
  // A thread of the program that works in the context.
  template <typename Work>
  std::thread InThread(Work work) {
    return std::thread([this, work] {
      FakeCuda::SetCurrent(context);
      work();
    });
  }
  std::int64_t Submitted(const Gate& gate) {
    std::int64_t submitted = 0;
    Attached().Gates().WithoutMarkers([&] { submitted = gate.Submitted(); });  // with the mutex that guards it
    return submitted;
  }
  void LoseDaemon() {
    EndDaemon();
    EXPECT_TRUE(Session::Instance().Lost());
  }
  void StartDaemonWith(GateOrder order) {
    StartDaemon().Set(
        [=](FakeDaemon::Answers& answers) { answers.page = [=](wire::Page& page) { page.gate = order; }; });
  }

  CUcontext context = nullptr;
};

TEST_F(AttachmentTest, IsMadeAtTheFirstUseAndOnce) {
  Attachment& attachment = Attached();
  EXPECT_EQ(Attachment::Of(device), &attachment);
  EXPECT_EQ(attachment.Gpu(), gpu);
  EXPECT_EQ(attachment.Device(), device);
}

TEST_F(AttachmentTest, ARefusalStandsAndIsSaidOnce) {
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.refuse_attach = "no vGPU of yours is on this GPU"; });
  testing::internal::CaptureStderr();
  EXPECT_EQ(Attachment::Of(device), nullptr);
  EXPECT_EQ(Attachment::Of(device), nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tessera: no vGPU of yours is on this GPU\n");
  EXPECT_EQ(cuCtxCreate_v2(&context, 0, device), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

TEST_F(AttachmentTest, NoSuchDeviceHasNone) {
  EXPECT_EQ(Attachment::Of(-1), nullptr);
  EXPECT_EQ(Attachment::Of(64), nullptr);
}

TEST_F(AttachmentTest, LaunchesPassTheOpenGate) {
  Begin(GateOrder::kFree);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().Submitted(context), 10u);
  EXPECT_EQ(Daemon().Await<wire::Wants>(gpu).waits, 0u);
  const Gate* gate = ThreadGate();
  ASSERT_NE(gate, nullptr);
  EXPECT_EQ(gate->context, context);
}

TEST_F(AttachmentTest, ALaunchWaitsForTheToken) {
  Begin(GateOrder::kClosed);
  std::atomic<bool> launched = false;
  std::thread launches = InThread([&] {
    EXPECT_EQ(Launch(), CUDA_SUCCESS);
    launched = true;
  });
  EXPECT_EQ(Daemon().Await<wire::Wants>(gpu).waits, 1u);
  EXPECT_FALSE(launched);
  EXPECT_EQ(Cuda().Submitted(context), 0u);
  Daemon().Order(gpu, GateOrder::kOpen);
  launches.join();
  EXPECT_EQ(Cuda().Submitted(context), 1u);
}

TEST_F(AttachmentTest, ALaunchForARemovedVgpuIsAnError) {
  Begin(GateOrder::kFree);
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  Page().removed = 1;
  Daemon().Order(gpu, GateOrder::kClosed);
  EXPECT_EQ(Launch(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(cuMemcpyHtoD_v2(0, nullptr, 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(Cuda().Submitted(context), 1u);
}

TEST_F(AttachmentTest, ThePacerGivesTheTokenBack) {
  Begin(GateOrder::kClosed);
  std::thread launches = InThread([&] { Launch(); });
  Daemon().Await<wire::Wants>(gpu);
  Daemon().Order(gpu, GateOrder::kOpen);
  launches.join();
  Daemon().Await<wire::Idle>(gpu);
  std::thread again = InThread([&] { Launch(); });
  Daemon().Await<wire::Wants>(gpu, 2);
  Daemon().Order(gpu, GateOrder::kOpen);
  again.join();
  Daemon().Order(gpu, GateOrder::kClosed);
  // By the order, or by itself just before.
  while (Daemon().Count<wire::Released>(gpu) + Daemon().Count<wire::Idle>(gpu) < 2) std::this_thread::yield();
  EXPECT_EQ(Page().submissions, 2u);
}

// Its gate was open a moment ago: the trampoline sees that the order is another one.
TEST_F(AttachmentTest, AThreadIsHeldUpByTheNextOrder) {
  Begin(GateOrder::kFree);
  std::atomic<Gate*> gate = nullptr;
  std::atomic<bool> launched = false;
  Page().idle_grace_ns = kNever;
  std::thread launches = InThread([&] {
    EXPECT_EQ(Launch(), CUDA_SUCCESS);
    EXPECT_EQ(Launch(), CUDA_SUCCESS);
    gate = ThreadGate();
    EXPECT_EQ(Submitted(*gate), 2);
    // An order that rings no bell: the pacer does not see it before the launch.
    Page().gate = GateOrder::kStopped;
    ++Page().epoch;
    EXPECT_EQ(Launch(), CUDA_SUCCESS);
    launched = true;
  });
  while (Page().gate_waits == 0 && !launched) std::this_thread::yield();
  EXPECT_FALSE(launched);
  EXPECT_EQ(Cuda().Submitted(context), 2u);
  EXPECT_EQ(Submitted(*gate), 2) << "one that waits is none yet";
  Daemon().Order(gpu, GateOrder::kFree);
  launches.join();
  EXPECT_EQ(Submitted(*gate), 3);
}

TEST_F(AttachmentTest, AnotherContextHasAnotherGate) {
  Begin(GateOrder::kFree);
  Launch();
  const Gate* first = ThreadGate();
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, device), CUDA_SUCCESS);
  EXPECT_EQ(ThreadGate(), nullptr);
  Launch();
  EXPECT_NE(ThreadGate(), first);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  Launch();
  EXPECT_EQ(ThreadGate(), first);
  EXPECT_EQ(Cuda().Submitted(context), 2u);
  EXPECT_EQ(Cuda().Submitted(other), 1u);
}

TEST_F(AttachmentTest, CopiesAreInsideOfACallThatMayWait) {
  Begin(GateOrder::kFree);
  EXPECT_EQ(cuMemcpyHtoD_v2(0, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(Page().calls, 0u);
  {
    const InCall one;
    const InCall other;
    EXPECT_EQ(Page().calls, 2u);
  }
  EXPECT_EQ(Page().calls, 0u);
  EXPECT_EQ(Cuda().Submitted(context), 1u);
}

TEST_F(AttachmentTest, WithoutAContextTheDriverAnswers) {
  FakeCuda::SetCurrent(nullptr);
  ForgetThreadGate();
  EXPECT_EQ(Launch(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(AttachmentTest, WhatIsCapturedDoesNotWait) {
  Begin(GateOrder::kClosed);
  const auto stream = reinterpret_cast<CUstream>(0x77);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

TEST_F(AttachmentTest, ContextsAreCounted) {
  Begin(GateOrder::kOpen);
  EXPECT_EQ(Daemon().Await<wire::Context>(gpu).delta, 1);
  EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(Daemon().Await<wire::Context>(gpu, 2).delta, -1);
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.context = [](std::uint32_t) { return wire::Reserved{}; }; });
  EXPECT_EQ(cuCtxCreate_v2(&context, 0, device), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(AttachmentTest, AContextTakesItsMemoryAlong) {
  Begin(GateOrder::kOpen);
  const std::int64_t before = Page().memory_credit;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 5 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(before - Page().memory_credit, static_cast<std::int64_t>(6 * kMiB));
  EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(Page().memory_credit, before);
}

TEST_F(AttachmentTest, ThePrimaryContextCountsOnce) {
  Begin(GateOrder::kOpen);
  CUcontext primary = nullptr, again = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, device), CUDA_SUCCESS);
  EXPECT_EQ(primary, again);
  EXPECT_EQ(Daemon().Count<wire::Context>(gpu), 2u);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Context>(gpu), 2u);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(Daemon().Await<wire::Context>(gpu, 3).delta, -1);
}

TEST_F(AttachmentTest, ANewDaemonLearnsWhatIsHeld) {
  Begin(GateOrder::kOpen);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 6 * kMiB), CUDA_SUCCESS);
  LoseDaemon();
  StartDaemonWith(GateOrder::kFree);
  Daemon().Page(gpu);  // somebody of this process attached
  wire::Attach request;
  for (const wire::Attach& each : Daemon().All<wire::Attach>(0))
    if (each.gpu.bytes[0] == gpu) request = each;
  EXPECT_EQ(request.memory_bytes, 6 * kMiB);
  EXPECT_EQ(request.room_bytes, 6 * kMiB);
  EXPECT_EQ(request.contexts, 1u);
  EXPECT_EQ(request.works, 0u);
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
  EXPECT_EQ(Launch(), CUDA_SUCCESS) << "by the new daemon's page";
  Daemon().Await<wire::Wants>(gpu);
  EXPECT_EQ(Page().pinned, 6 * kMiB);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(AttachmentTest, WhereNobodyComesWorkGoesOn) {
  Begin(GateOrder::kClosed);
  LoseDaemon();
  StartDaemon().Set([](FakeDaemon::Answers& answers) { answers.welcome = {.grace_ns = 0}; });
  Daemon().Page(gpu);
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
  testing::internal::CaptureStderr();
  EndDaemon();
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("going on without limits of time"), std::string::npos);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, kMiB), CUDA_ERROR_OUT_OF_MEMORY) << "but not beyond what was free";
  StartDaemonWith(GateOrder::kFree);
  Daemon().Page(gpu);
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
}

TEST_F(AttachmentTest, WhereNobodyComesARemovedVgpuStaysRemoved) {
  Begin(GateOrder::kClosed);
  LoseDaemon();
  StartDaemon().Set([](FakeDaemon::Answers& answers) { answers.welcome = {.grace_ns = 0}; });
  Daemon().Page(gpu);
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
  Page().removed = 1;
  testing::internal::CaptureStderr();
  EndDaemon();
  DaemonWatch::Instance().Mind(MonotonicNow());
  EXPECT_EQ(Launch(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("removed"), said.rfind("removed")) << said;
  EXPECT_EQ(Cuda().Submitted(context), 0u);
  StartDaemonWith(GateOrder::kFree);
  Daemon().Page(gpu);
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
  EXPECT_EQ(Launch(), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

// Locks that another thread held when the program forked are free in the child, and the child's calls return.
TEST_F(AttachmentTest, AChildIsHeldUpByNothing) {
  Begin(GateOrder::kFree);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, kMiB), CUDA_SUCCESS);
  Daemon().Order(gpu, GateOrder::kStopped);
  std::thread waits = InThread([&] { Launch(); });
  WaitUntil([&] { return Page().gate_waits != 0; });
  const std::int64_t credit = Page().memory_credit;
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    // The daemon is not told, and nothing changes in the parent's page.
    const bool fine = Launch() == CUDA_SUCCESS && cuMemFree_v2(address) == CUDA_SUCCESS;
    Attachment::ForEach([](Attachment& attachment) { attachment.Stop(); });
    _exit(fine && !Session::Instance().Managed() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Page().memory_credit, credit);
  Daemon().Order(gpu, GateOrder::kFree);
  waits.join();
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::shim
