#include "shim/use/operands.h"

#include <cstring>
#include <vector>

#include "pager/testing/heap_fixture.h"
#include "shim/load/real.h"

namespace tessera::shim {
namespace {

using namespace cuda;

// The sizes of the parameters of the kernel that the driver knows, once as a CUfunction and once as a CUkernel.
std::vector<std::size_t> parameters;
constexpr std::uint64_t kFunction = 0xf000, kKernel = 0xf008;

CUresult InfoOf(std::uint64_t known, std::uint64_t function, std::size_t index, std::size_t* bytes) {
  if (function != known) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *bytes = parameters[index];
  return CUDA_SUCCESS;
}
CUresult FuncInfo(std::uint64_t function, std::size_t index, std::size_t*, std::size_t* bytes) {
  return InfoOf(kFunction, function, index, bytes);
}
CUresult KernelInfo(std::uint64_t function, std::size_t index, std::size_t*, std::size_t* bytes) {
  return InfoOf(kKernel, function, index, bytes);
}
CUresult NoDriver() { return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED; }

class OperandsTest : public pager::HeapFixture {
 protected:
  void SetUp() override {
    tessera_real_table[k_cuFuncGetParamInfo] = reinterpret_cast<void*>(&FuncInfo);
    tessera_real_table[k_cuKernelGetParamInfo] = reinterpret_cast<void*>(&KernelInfo);
    address = AllocateChunks(2)[0];
    EXPECT_EQ(mover.Evict(1), 1u);
  }

  // Whether a call is a use of the memory: that is out, and so hot after some of them.
  bool Uses(unsigned symbol, std::vector<std::uint64_t> arguments) {
    arguments.resize(std::max<std::size_t>(arguments.size(), GatedCall::kRegisters));
    std::vector<std::uint64_t> words = {symbol};
    words.insert(words.end(), arguments.begin(), arguments.begin() + GatedCall::kRegisters);
    words.push_back(address);  // where the caller goes on is nobody's argument
    words.insert(words.end(), arguments.begin() + GatedCall::kRegisters, arguments.end());
    Nanos now = MonotonicNow() + 100 * pager::UseHistory::kInterval * ++calls;
    for (int i = 0; i < 5; ++i) named = TouchOperands({words.data()}, *heap, now += pager::UseHistory::kInterval);
    return heap->Heat().HotOut(now) > 0;
  }
  bool LaunchUses(std::vector<const void*> arguments, std::uint64_t function = kFunction) {
    return Uses(k_cuLaunchKernel, {function, 1, 1, 1, 1, 1, 1, 0, 0, AsWord(arguments.data()), 0});
  }
  static std::uint64_t AsWord(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

  CUdeviceptr address = 0;
  bool named = false;  // by the last call
  int calls = 0;
};

TEST_F(OperandsTest, AKernelsArgumentsAreUses) {
  const std::uint32_t number = 3;
  const std::uint64_t other = 0x1234;
  const CUdeviceptr inside = address + 4096;
  parameters = {4, 8, 8};
  EXPECT_TRUE(LaunchUses({&number, &other, &inside}));
  EXPECT_TRUE(LaunchUses({&number, &inside, &other}, kKernel));
  EXPECT_FALSE(LaunchUses({&number, &other, &other}));
  EXPECT_FALSE(LaunchUses({&number, nullptr, &other}));
}

TEST_F(OperandsTest, ShapedCopiesAreUses) {
  const CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = address};
  EXPECT_TRUE(Uses(k_cuMemcpy2DAsync_v2, {AsWord(&plane)}));
  const CUDA_MEMCPY3D volume = {.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = address};
  EXPECT_TRUE(Uses(k_cuMemcpy3D_v2_ptds, {AsWord(&volume)}));
  const CUDA_MEMCPY3D_PEER peers = {.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = address};
  EXPECT_TRUE(Uses(k_cuMemcpy3DPeerAsync, {AsWord(&peers)}));
  const CUDA_MEMCPY3D elsewhere = {.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = 0x1234};
  EXPECT_FALSE(Uses(k_cuMemcpy3D_v2, {AsWord(&elsewhere)}));
}

TEST_F(OperandsTest, EachCopyOfABatchIsAUse) {
  const CUdeviceptr elsewhere[] = {0x1234, 0x5678}, last[] = {0x1234, address};
  EXPECT_TRUE(Uses(k_cuMemcpyBatchAsync_v2, {AsWord(elsewhere), AsWord(last), 0, 2}));
  EXPECT_TRUE(Uses(k_cuMemcpyBatchAsync, {AsWord(last), AsWord(elsewhere), 0, 2}));
  EXPECT_FALSE(Uses(k_cuMemcpyBatchAsync, {AsWord(last), AsWord(elsewhere), 0, 1}));
  CUDA_MEMCPY3D_BATCH_OP operation{};
  operation.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.src.op.ptr.ptr = address;
  operation.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  EXPECT_TRUE(Uses(k_cuMemcpy3DBatchAsync, {1, AsWord(&operation)}));
  operation.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  EXPECT_FALSE(Uses(k_cuMemcpy3DBatchAsync, {1, AsWord(&operation)}));
}

TEST_F(OperandsTest, NoMoreIsReadThanTheKernelHas) {
  parameters = {8};
  const std::uint64_t other = 0;
  EXPECT_FALSE(LaunchUses({&other, &address}));
  EXPECT_FALSE(LaunchUses({&other, reinterpret_cast<const void*>(8)}));
  parameters = {4};
  EXPECT_FALSE(LaunchUses({&address}));  // half of it
  parameters = {};
  EXPECT_FALSE(LaunchUses({reinterpret_cast<const void*>(8)}));
}

TEST_F(OperandsTest, AKernelThatNamesNothingMayUseAnything) {
  const std::uint64_t other = 0x1234;
  const CUdeviceptr small = Allocate(4096);
  parameters = {8};
  LaunchUses({&address});
  EXPECT_TRUE(named);
  LaunchUses({&small});
  EXPECT_TRUE(named);
  LaunchUses({&other});
  EXPECT_FALSE(named);
  Uses(k_cuLaunchGrid, {kFunction, 1, 1});
  EXPECT_FALSE(named);
  Uses(k_cuMemcpyDtoH_v2, {0x1000, 0x2000, 100});
  EXPECT_TRUE(named) << "a copy says all";
  parameters = {};
  LaunchUses({});
  EXPECT_FALSE(named);
  tessera_real_table[k_cuFuncGetParamInfo] = reinterpret_cast<void*>(&NoDriver);
  parameters = {8};
  LaunchUses({&address});
  EXPECT_FALSE(named);
}

TEST_F(OperandsTest, PointersInStructuresAreFound) {
  const struct {
    std::uint32_t count = 7;
    std::uint64_t other = 1;
    CUdeviceptr pointer = 0;
  } argument{.pointer = address};
  parameters = {sizeof argument};
  EXPECT_TRUE(LaunchUses({&argument}));
}

TEST_F(OperandsTest, WhereTheDriverDoesNotTellNothingIsRead) {
  tessera_real_table[k_cuFuncGetParamInfo] = reinterpret_cast<void*>(&NoDriver);
  EXPECT_FALSE(LaunchUses({reinterpret_cast<const void*>(8)}));
}

TEST_F(OperandsTest, EachKindOfLaunchHasThemInItsPlace) {
  parameters = {8};
  const void* arguments[] = {&address};
  const std::uint64_t list = AsWord(static_cast<const void*>(arguments));
  EXPECT_TRUE(Uses(k_cuLaunchKernel_ptsz, {kFunction, 1, 1, 1, 1, 1, 1, 0, 0, list, 0}));
  EXPECT_TRUE(Uses(k_cuLaunchCooperativeKernel, {kFunction, 1, 1, 1, 1, 1, 1, 0, 0, list}));
  EXPECT_TRUE(Uses(k_cuLaunchKernelEx, {0, kFunction, list, 0}));
}

TEST_F(OperandsTest, PackedArgumentsAreUses) {
  const std::uint64_t buffer[] = {1, 2, address};
  std::size_t bytes = sizeof buffer;
  void* const extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::uint64_t*>(buffer),
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  const std::uint64_t list = AsWord(static_cast<const void*>(extra));
  EXPECT_TRUE(Uses(k_cuLaunchKernel, {kFunction, 1, 1, 1, 1, 1, 1, 0, 0, 0, list}));
  bytes = 2 * sizeof *buffer;
  EXPECT_FALSE(Uses(k_cuLaunchKernel, {kFunction, 1, 1, 1, 1, 1, 1, 0, 0, 0, list}));
}

TEST_F(OperandsTest, CopiesAndMemsetsUseWhatTheyName) {
  EXPECT_TRUE(Uses(k_cuMemsetD32Async, {address, 0, 100, 0}));
  EXPECT_TRUE(Uses(k_cuMemcpyHtoD_v2, {address, 0x1000, 100}));
  EXPECT_TRUE(Uses(k_cuMemcpyDtoH_v2, {0x1000, address, 100}));
  EXPECT_TRUE(Uses(k_cuMemcpyPeer, {0x1000, 0x2000, address, 0x2000, 100}));
  EXPECT_FALSE(Uses(k_cuMemcpyDtoH_v2, {0x1000, 0x2000, 100, address}));  // what a register held before
}

}  // namespace
}  // namespace tessera::shim
