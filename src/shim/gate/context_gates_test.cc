#include "shim/gate/context_gates.h"

#include "shim/gate/capture.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

class ContextGatesTest : public ShimFixture {
 protected:
  ContextGatesTest() : ShimFixture(false) {}
  Gate* GateOf(cuda::CUcontext context) { return gates.Of(context, keeper, epoch); }
  // So many submissions, of which the driver knows.
  void Submit(Gate* gate, int count = 1) {
    gate->given += count;
    for (int i = 0; i < count; ++i) {
      FakeCuda::SetCurrent(gate->context);
      EXPECT_EQ(reinterpret_cast<cuda::CUresult (*)(cuda::CUdeviceptr, const void*, std::size_t)>(
                    tessera_real_table[k_cuMemcpyHtoD_v2])(0, nullptr, 0),
                cuda::CUDA_SUCCESS);
    }
  }

  std::atomic<std::uint32_t> epoch{5};
  FollowedPage page;
  HostMemory host;
  GateKeeper keeper{page, host};
  ContextGates& gates = Kept(new ContextGates);
  cuda::CUcontext one = Cuda().MakeContext(device), other = Cuda().MakeContext(device);
};

TEST_F(ContextGatesTest, WorkOfAllContextsCounts) {
  Submit(GateOf(one), 2);
  Submit(GateOf(other), 3);
  EXPECT_EQ(gates.Submitted(), 5);
  EXPECT_FALSE(gates.Drained()) << "nothing is marked";
  gates.Cover(10, false);
  EXPECT_TRUE(gates.AnyPending());
  Cuda().End(one);
  gates.Observe(20, 100);
  EXPECT_FALSE(gates.Drained());
  Cuda().End(other);
  gates.Observe(30, 100);
  EXPECT_TRUE(gates.Drained());
  EXPECT_TRUE(gates.SurelyDrained());
  EXPECT_EQ(gates.LastReached(0), 30);
  EXPECT_EQ(gates.LastReached(50), 50);
}

TEST_F(ContextGatesTest, OnlyWhatIsNotCoveredGetsAMarker) {
  Submit(GateOf(one));
  GateOf(other);
  gates.Cover(10, false);
  gates.Cover(20, false);
  EXPECT_EQ(Cuda().Markers(one), 1u);
  EXPECT_EQ(Cuda().Markers(other), 0u);
  gates.MarkAll(30);
  EXPECT_EQ(Cuda().Markers(one), 2u);
  EXPECT_EQ(Cuda().Markers(other), 1u);
}

TEST_F(ContextGatesTest, ACaptureMeansThatMarkersTellNoMore) {
  Submit(GateOf(one));
  AddCapture(cuda::CU_STREAM_PER_THREAD, one);
  gates.Cover(10, false);
  EXPECT_FALSE(gates.AnyPending());
  EXPECT_TRUE(gates.Drained()) << "as far as can be known";
  EXPECT_FALSE(gates.SurelyDrained());
  RemoveCapture(cuda::CU_STREAM_PER_THREAD);
  EXPECT_FALSE(gates.Drained());
}

TEST_F(ContextGatesTest, ClosedGatesHaveNoBudget) {
  Gate* gate = GateOf(one);
  gate->Give(10);
  gate->accepted = epoch.load();
  gates.CloseAll();
  EXPECT_EQ(gate->budget, 0);
  EXPECT_NE(gate->accepted, epoch);
  EXPECT_EQ(gates.Submitted(), 1) << "what was not used is taken back";
}

TEST_F(ContextGatesTest, GatesFollowAnotherPage) {
  Gate* gate = GateOf(one);
  gate->accepted = epoch.load();
  std::atomic<std::uint32_t> next{9};
  gates.Follow(next);
  EXPECT_EQ(gate->epoch, &next);
  EXPECT_NE(gate->accepted, 9u);
}

TEST_F(ContextGatesTest, RelearningBeginsWithTheSmallestWindow) {
  Gate* gate = GateOf(one);
  ASSERT_GT(gate->markers->Window(), Window::kSmallest);
  gate->accepted = epoch.load();
  gates.Relearn();
  EXPECT_EQ(gate->markers->Window(), Window::kSmallest);
  EXPECT_NE(gate->accepted, epoch);
}

TEST_F(ContextGatesTest, AForgottenContextCountsNoMore) {
  Gate* gate = GateOf(one);
  Submit(gate, 4);
  GateOf(other);
  gates.Forget(one);
  EXPECT_EQ(gates.Submitted(), 0);
  EXPECT_TRUE(gates.Drained());
  gates.Forget(one);  // nothing is left of it
  EXPECT_EQ(GateOf(Cuda().MakeContext(device)), gate);
}

}  // namespace
}  // namespace tessera::shim
