#include "shim/testing/shim_fixture.h"

#include <stdlib.h>

#include <memory>
#include <vector>

#include "base/testing/temporary_folder.h"
#include "shim/load/hook.h"

extern "C" tessera::cuda::CUresult cuInit(unsigned);

namespace tessera::shim {
namespace {

std::unique_ptr<FakeDaemon> daemon;
int next_device = 0;
std::uint32_t next_gpu = 1000;  // of tests that make pages of their own

}  // namespace

std::string ShimFixture::Directory() {
  static const TemporaryFolder directory;
  static const bool told =
      setenv("TESSERA_RUN_DIR", directory.path().c_str(), 1) == 0 && setenv("TESSERA_VGPU", "team", 1) == 0;
  EXPECT_TRUE(told);
  return directory.path();
}

void ShimFixture::Keep(void* object) {
  static auto* kept = new std::vector<void*>;  // where the leak checker finds them
  kept->push_back(object);
}

ShimFixture::ShimFixture(bool attaches)
    : device(attaches ? next_device++ : 0), gpu(attaches ? static_cast<std::uint32_t>(device) + 1 : next_gpu++) {
  Cuda();
  if (!daemon) StartDaemon();
  daemon->Set([](FakeDaemon::Answers& answers) { answers = {}; });
  static const cuda::CUresult opened = cuInit(0);
  EXPECT_EQ(opened, cuda::CUDA_SUCCESS);
  FakeCuda::SetCurrent(nullptr);
  ForgetThreadGate();
}

ShimFixture::~ShimFixture() {
  Attachment::ForEach([this](Attachment& attachment) {
    if (attachment.Device() == device) attachment.Stop();
  });
  EXPECT_THAT(Cuda().Complaints(), testing::IsEmpty());
  FakeCuda::SetCurrent(nullptr);
}

FakeCuda& ShimFixture::Cuda() {
  static auto* cuda = new FakeCuda;  // threads of earlier tests may still call it
  return *cuda;
}

FakeDaemon& ShimFixture::Daemon() { return *daemon; }

void ShimFixture::EndDaemon() { daemon.reset(); }

FakeDaemon& ShimFixture::StartDaemon() {
  daemon = std::make_unique<FakeDaemon>(Directory() + "/client.sock");
  static const int at_exit = atexit([] { daemon.reset(); });  // before its folder goes
  EXPECT_EQ(at_exit, 0);
  return *daemon;
}

void ShimFixture::Settle() {
  wire::View view;
  wire::Header header;
  EXPECT_TRUE(Session::Instance().Ask(wire::Make(wire::Query{}), view, header));
}

Attachment& ShimFixture::Attached() {
  Attachment* attachment = Attachment::Of(device);
  EXPECT_NE(attachment, nullptr);
  if (!attachment) abort();
  return *attachment;
}

cuda::CUcontext ShimFixture::MakeContext() {
  const cuda::CUcontext context = Cuda().MakeContext(device);
  FakeCuda::SetCurrent(context);
  ForgetThreadGate();
  return context;
}

void ShimFixture::Swap(wire::GateOrder order) {
  Daemon().Set([=](FakeDaemon::Answers& answers) {
    answers.attached.swaps = 1;
    answers.page = [=](wire::Page& page) {
      page.gate = order;
      page.memory_max = 8 * kGiB;
      page.room_credit = 4 * kGiB;
    };
  });
}

}  // namespace tessera::shim
