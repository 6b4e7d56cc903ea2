// Several processes on the same soft GPUs see each other's use.
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "soft/testing/test_api.h"
#include "soft/testing/test_peer.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

using ApiProcess = SoftApiTest;

TEST_F(ApiProcess, MemoryIsOfAllAndFreedOnKill) {
  const std::size_t free = FreeBytes();
  constexpr std::size_t kHeld = 100 << 20;
  {
    Peer peer("hold", std::to_string(kHeld));
    ASSERT_EQ(peer.Line(), "held");
    EXPECT_EQ(FreeBytes(), free - kTestContext - kHeld);
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc_v2(&memory, free - kHeld), CUDA_ERROR_OUT_OF_MEMORY);
    Peer second("hold", std::to_string(free));
    EXPECT_EQ(second.Line(), "CUDA_ERROR_OUT_OF_MEMORY");
    peer.Kill();
  }
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(ApiProcess, IpcHandleOpensTheSameMemory) {
  CUdeviceptr padding = 0;
  CUdeviceptr memory = 0;
  ASSERT_OK(cuMemAlloc_v2(&padding, 1000));
  ASSERT_OK(cuMemAlloc_v2(&memory, 1000));
  EXPECT_OK(cuMemsetD8_v2(memory, 42, 1000));
  CUipcMemHandle handle = {};
  ASSERT_OK(cuIpcGetMemHandle(&handle, memory));
  CUdeviceptr own = 0;
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&own, handle, 0), CUDA_ERROR_INVALID_CONTEXT);
  std::string hex;
  for (const char c : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    hex += digits;
  }
  EXPECT_EQ(Peer("open", hex).Line(), "42");
  unsigned char value = 0;
  EXPECT_OK(cuMemcpyDtoH_v2(&value, memory, 1));
  EXPECT_EQ(value, 99);
  EXPECT_EQ(Peer("open", std::string(128, '0')).Line(), "CUDA_ERROR_INVALID_VALUE");
}

TEST_F(ApiProcess, ForkedChildIsTold) {
  const pid_t child = fork();
  if (child == 0) {
    std::size_t free = 0;
    CUdeviceptr memory = 0;
    const bool refused = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuMemGetInfo_v2(&free, &free) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuMemAlloc_v2(&memory, 1) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  CUdeviceptr memory = 0;
  EXPECT_OK(cuMemAlloc_v2(&memory, 1));
}

}  // namespace
}  // namespace tessera::soft
