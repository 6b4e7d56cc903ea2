// Memory of another program's: the test exports it by itself, and the shim takes it for another's.
#include "shim/memory/imports.h"

#include <set>
#include <thread>

#include "shim/gate/capture.h"
#include "shim/load/hook.h"
#include "shim/memory/exports.h"
#include "shim/testing/shim_fixture.h"
#include "wire/line.h"

TESSERA_HOOK cuMemAlloc_v2(tessera::cuda::CUdeviceptr*, size_t);
TESSERA_HOOK cuMemFree_v2(tessera::cuda::CUdeviceptr);

namespace tessera::shim {
namespace {

using namespace cuda;

class ImportsTest : public ShimFixture {
 protected:
  ImportsTest() {
    Swap();
    context = (Attached(), MakeContext());
    EXPECT_EQ(cuMemAlloc_v2(&owner, kBytes), CUDA_SUCCESS);
    Cuda().memory.Write(owner, 7);
    EXPECT_EQ(ExportMemory(*Attached().Pager(), owner, &key), CUDA_SUCCESS);
    mappings = Cuda().memory.Mappings();
    handles = Cuda().memory.Handles();
  }
  ~ImportsTest() override {
    EXPECT_EQ(Cuda().memory.Mappings(), mappings) << "nothing of an import is left";
    EXPECT_EQ(Cuda().memory.Handles(), handles);
  }

  Importer Here() const { return {gpu, device}; }
  CUresult Import(CUdeviceptr* address) { return ImportMemory(Here(), key, address, /*patience=*/0); }

  static constexpr std::uint64_t kBytes = 100 * kMiB;
  CUcontext context = nullptr;
  CUdeviceptr owner = 0;
  wire::ExportKey key;
  std::uint64_t mappings = 0, handles = 0;
};

TEST_F(ImportsTest, TheMemoryIsTheOthersAndMayBeUsed) {
  CUdeviceptr address = 0;
  ASSERT_EQ(Import(&address), CUDA_SUCCESS);
  EXPECT_NE(address, owner);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  EXPECT_TRUE(Cuda().memory.Valid(address + kBytes - 8, {device}));
  EXPECT_EQ(Cuda().memory.Read(address), 7u);
  EXPECT_TRUE(CloseImport(address));
}

TEST_F(ImportsTest, ItIsNotCharged) {
  const std::uint64_t before = Attached().Memory().Free();
  CUdeviceptr address = 0;
  ASSERT_EQ(Import(&address), CUDA_SUCCESS);
  EXPECT_EQ(Attached().Memory().Free(), before);
  EXPECT_TRUE(CloseImport(address));
}

TEST_F(ImportsTest, AsecondUseIsTheSameMemory) {
  CUdeviceptr one = 0, other = 0;
  ASSERT_EQ(Import(&one), CUDA_SUCCESS);
  ASSERT_EQ(Import(&other), CUDA_SUCCESS);
  EXPECT_EQ(one, other);
  EXPECT_EQ(Daemon().Count<wire::Import>(gpu), 1u);
  EXPECT_TRUE(CloseImport(one));
  EXPECT_TRUE(Cuda().memory.Valid(one, {device}));
  EXPECT_TRUE(CloseImport(one));
  EXPECT_FALSE(Cuda().memory.Valid(one, {device}));
  EXPECT_FALSE(CloseImport(one));
}

TEST_F(ImportsTest, AnotherContextOfTheGpuHasAMappingOfItsOwn) {
  CUdeviceptr one = 0, other = 0;
  ASSERT_EQ(Import(&one), CUDA_SUCCESS);
  const CUcontext second = MakeContext();
  ASSERT_EQ(Import(&other), CUDA_SUCCESS);
  EXPECT_NE(one, other);
  CloseImportsOf(context, NextImportId());
  EXPECT_FALSE(Cuda().memory.Valid(one, {device}));
  EXPECT_TRUE(Cuda().memory.Valid(other, {device}));
  const std::uint64_t before = Cuda().Synchronized(second);
  EXPECT_TRUE(CloseImport(other));
  EXPECT_EQ(Cuda().Synchronized(second), before + 1) << "its own context's work may use it";
}

TEST_F(ImportsTest, AnotherGpuOfTheProcessGetsAccessToo) {
  CUdeviceptr here = 0, there = 0;
  ASSERT_EQ(Import(&here), CUDA_SUCCESS);
  FakeCuda::SetCurrent(Cuda().MakeContext(63));
  ASSERT_EQ(ImportMemory({gpu, 63}, key, &there), CUDA_SUCCESS);
  EXPECT_TRUE(Cuda().memory.Valid(there, {63, device}));
  EXPECT_TRUE(ImportReaches(there, 63));
  EXPECT_FALSE(ImportReaches(here, 63));
  EXPECT_EQ(Cuda().memory.Read(there), 7u);
  EXPECT_TRUE(CloseImport(there));
  EXPECT_TRUE(Cuda().memory.Valid(here, {device})) << "each is closed by itself";
  FakeCuda::SetCurrent(context);
  EXPECT_TRUE(CloseImport(here));
}

TEST_F(ImportsTest, ItsOwnGpuMayBeLeftOut) {
  FakeCuda::SetCurrent(Cuda().MakeContext(63));
  CUdeviceptr there = 0;
  Cuda().memory.FailCall(6);  // access for both: after reserving and two chunks of two calls each
  ASSERT_EQ(ImportMemory({gpu, 63}, key, &there), CUDA_SUCCESS);
  EXPECT_TRUE(Cuda().memory.Valid(there, {63}));
  EXPECT_TRUE(ImportReaches(there, 63));
  EXPECT_FALSE(ImportReaches(there, device));
  EXPECT_TRUE(CloseImport(there));
}

TEST_F(ImportsTest, MemoryOnAGpuThatIsHiddenCannotBeOpened) {
  Cuda().Put(k_cuDeviceGetCount, +[](int* count) { return *count = 0, CUDA_SUCCESS; });
  CUdeviceptr address = 0;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Import(&address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("CUDA_VISIBLE_DEVICES hides it"), std::string::npos);
  Cuda().Put(k_cuDeviceGetCount, +[](int* count) { return *count = 64, CUDA_SUCCESS; });
}

TEST_F(ImportsTest, TheLastUseEndsAfterTheWork) {
  CUdeviceptr address = 0;
  ASSERT_EQ(Import(&address), CUDA_SUCCESS);
  const std::uint64_t before = Cuda().Synchronized(context);
  EXPECT_TRUE(CloseImport(address));
  EXPECT_EQ(Cuda().Synchronized(context), before + 1);
}

TEST_F(ImportsTest, DuringACaptureItStaysMapped) {
  CUdeviceptr address = 0, next = 0;
  ASSERT_EQ(Import(&address), CUDA_SUCCESS);
  AddCapture(CU_STREAM_PER_THREAD, context);
  EXPECT_TRUE(CloseImport(address));
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  CUdevice where = -1;
  EXPECT_FALSE(ImportAt(address, &where)) << "as far as the program knows it is gone";
  RemoveCapture(CU_STREAM_PER_THREAD);
  ASSERT_EQ(Import(&next), CUDA_SUCCESS);
  EXPECT_NE(next, address);
  EXPECT_FALSE(Cuda().memory.Valid(address, {device}));
  EXPECT_TRUE(CloseImport(next));
}

TEST_F(ImportsTest, ItIsKnownByItsAddresses) {
  CUdeviceptr address = 0;
  CUdevice where = -1;
  EXPECT_FALSE(ImportAt(owner, &where));
  ASSERT_EQ(Import(&address), CUDA_SUCCESS);
  const auto block = ImportAt(address + kBytes - 1, &where);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->begin, address);
  EXPECT_EQ(block->bytes, kBytes);
  EXPECT_EQ(block->context, context);
  EXPECT_EQ(where, device);
  EXPECT_FALSE(ImportAt(address + kBytes, &where));
  EXPECT_FALSE(ImportAt(address - 1, &where));
  EXPECT_TRUE(CloseImport(address));
}

TEST_F(ImportsTest, AContextThatEndsTakesItsImportsAlong) {
  const std::uint64_t before = NextImportId();
  CUdeviceptr address = 0;
  ASSERT_EQ(Import(&address), CUDA_SUCCESS);
  CloseImportsOf(Cuda().MakeContext(device), NextImportId());
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  CloseImportsOf(context, before);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device})) << "those that came after its end are another's";
  CloseImportsOf(context, NextImportId());
  EXPECT_FALSE(Cuda().memory.Valid(address, {device}));
  EXPECT_FALSE(CloseImport(address));
}

TEST_F(ImportsTest, AKeyThatNobodyGaveOpensNothing) {
  CUdeviceptr address = 0;
  wire::ExportKey wrong = key;
  wrong.bytes[0] ^= 1;
  testing::internal::CaptureStderr();
  EXPECT_EQ(ImportMemory(Here(), wrong, &address, /*patience=*/0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no such export"), std::string::npos);
}

TEST_F(ImportsTest, AnImportThatFailsHalfWayLeavesNothing) {
  // Reserving, two chunks of two calls each, access.
  for (std::uint64_t call = 1; call <= 6; ++call) {
    Cuda().memory.FailCall(call);
    CUdeviceptr address = 0;
    EXPECT_NE(Import(&address), CUDA_SUCCESS) << "call " << call;
    EXPECT_EQ(Cuda().memory.Mappings(), mappings) << "call " << call;
    EXPECT_EQ(Cuda().memory.Handles(), handles) << "call " << call;
  }
  Cuda().memory.FailCall(0, 0);
  CUdeviceptr address = 0;
  EXPECT_EQ(Import(&address), CUDA_SUCCESS);
  EXPECT_TRUE(CloseImport(address));
}

TEST_F(ImportsTest, ManyChunksComeInParts) {
  CUdeviceptr large = 0, address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&large, 20 * wire::kChunkBytes), CUDA_SUCCESS);
  ASSERT_EQ(ExportMemory(*Attached().Pager(), large, &key), CUDA_SUCCESS);
  Cuda().memory.Write(large + 19 * wire::kChunkBytes, 99);
  mappings = Cuda().memory.Mappings();
  handles = Cuda().memory.Handles();
  ASSERT_EQ(Import(&address), CUDA_SUCCESS);
  EXPECT_EQ(Daemon().Count<wire::Import>(gpu), 2u);
  EXPECT_EQ(Cuda().memory.Read(address + 19 * wire::kChunkBytes), 99u);
  EXPECT_TRUE(CloseImport(address));
}

TEST_F(ImportsTest, TheOwnerMayFreeIt) {
  CUdeviceptr address = 0;
  ASSERT_EQ(Import(&address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(owner), CUDA_SUCCESS);
  EXPECT_TRUE(Cuda().memory.Valid(address, {device}));
  EXPECT_TRUE(CloseImport(address));
  // The owner's mappings went, or go soon.
  mappings = Cuda().memory.Mappings();
  handles = Cuda().memory.Handles();
}

TEST_F(ImportsTest, WithoutADaemonNothingCanBeOpened) {
  EndDaemon();
  CUdeviceptr address = 0;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Import(&address), CUDA_ERROR_MAP_FAILED);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot be opened"), std::string::npos);
  StartDaemon().Set([](FakeDaemon::Answers& answers) { answers.attached.swaps = 1; });
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
}

TEST_F(ImportsTest, WhileTheDaemonIsReplacedOpeningWaits) {
  EndDaemon();
  std::thread next([] {
    StartDaemon().Set([](FakeDaemon::Answers& answers) { answers.attached.swaps = 1; });
    EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
  });
  CUdeviceptr address = 0;
  EXPECT_EQ(ImportMemory(Here(), key, &address), CUDA_SUCCESS);
  next.join();
  EXPECT_EQ(Cuda().memory.Read(address), 7u);
  EXPECT_TRUE(CloseImport(address));
}

}  // namespace
}  // namespace tessera::shim
