#include "shim/gate/capture.h"

#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"

TESSERA_HOOK cuStreamBeginCapture_v2(tessera::cuda::CUstream, tessera::cuda::CUstreamCaptureMode);
TESSERA_HOOK cuStreamEndCapture(tessera::cuda::CUstream, tessera::cuda::CUgraph*);
TESSERA_HOOK cuStreamDestroy_v2(tessera::cuda::CUstream);

namespace tessera::shim {
namespace {

using namespace cuda;

class CaptureTest : public ShimFixture {
 protected:
  CaptureTest() : ShimFixture(false) {}
  CUstream stream = reinterpret_cast<CUstream>(0x5000);
  CUstream other = reinterpret_cast<CUstream>(0x6000);
  CUgraph graph = nullptr;
};

TEST_F(CaptureTest, CapturesAreCounted) {
  EXPECT_FALSE(AnyCapture());
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_TRUE(AnyCapture());
  EXPECT_EQ(cuStreamEndCapture(other, &graph), CUDA_SUCCESS);
  EXPECT_FALSE(AnyCapture());
}

TEST_F(CaptureTest, ACaptureThatDoesNotBeginIsNone) {
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_NE(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_FALSE(AnyCapture());
}

TEST_F(CaptureTest, TheEndOfACaptureThatIsNoneChangesNothing) {
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_NE(cuStreamEndCapture(other, &graph), CUDA_SUCCESS);
  EXPECT_TRUE(AnyCapture());
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, AStreamTakesItsCaptureAlong) {
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_FALSE(AnyCapture());
}

TEST_F(CaptureTest, NullIsTheThreadsOwnStream) {
  ASSERT_EQ(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_TRUE(AnyCapture());
  RemoveCapture(CU_STREAM_PER_THREAD);
  EXPECT_FALSE(AnyCapture());
  EXPECT_EQ(cuStreamDestroy_v2(nullptr), CUDA_SUCCESS);
}

TEST_F(CaptureTest, AContextTakesItsCapturesAlong) {
  const CUcontext one = Cuda().MakeContext(device), two = Cuda().MakeContext(device);
  AddCapture(stream, one);
  AddCapture(other, two);
  NoteCapturedGraph(stream, reinterpret_cast<CUgraph>(0x7000));
  EXPECT_EQ(ForgetCapturesOf(one), std::vector{reinterpret_cast<CUgraph>(0x7000)});
  EXPECT_TRUE(AnyCapture());
  EXPECT_TRUE(ForgetCapturesOf(two).empty());
  EXPECT_FALSE(AnyCapture());
}

}  // namespace
}  // namespace tessera::shim
