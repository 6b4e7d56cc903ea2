// A program of the driver API for tests that need another process. Usage:
//   soft_test_peer hold BYTES   allocates, answers "held" or the error, keeps it until standard input ends
//   soft_test_peer open HANDLE  opens an IPC handle given in hex, answers the first byte and sets it to 99
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "soft/test_api.h"

namespace {

using namespace tessera::cuda;

void Check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::puts(ResultName(result));
  std::exit(1);
}

void Hold(std::size_t bytes) {
  CUdeviceptr memory = 0;
  Check(cuMemAlloc_v2(&memory, bytes));
  std::puts("held");
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

void Open(const std::string& hex) {
  CUipcMemHandle handle = {};
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  CUdeviceptr memory = 0;
  Check(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CUdeviceptr again = 0;
  Check(cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  unsigned char value = 0;
  Check(cuMemcpyDtoH_v2(&value, memory, 1));
  Check(cuMemsetD8_v2(memory, 99, 1));
  Check(cuIpcCloseMemHandle(memory));
  Check(cuIpcCloseMemHandle(again));
  if (cuIpcCloseMemHandle(memory) == CUDA_SUCCESS) std::puts("closed too often");
  std::printf("%d\n", value);
}

}  // namespace

int main(int, char** arguments) {
  Check(cuInit(0));
  CUcontext context = nullptr;
  Check(cuDevicePrimaryCtxRetain(&context, 0));
  Check(cuCtxSetCurrent(context));
  const std::string command = arguments[1];
  if (command == "hold") Hold(std::strtoull(arguments[2], nullptr, 10));
  if (command == "open") Open(arguments[2]);
}
