// A program of the driver API for tests that need another process. Usage:
//   soft_test_peer hold BYTES   allocates, answers "held" or the error, keeps it until standard input ends
//   soft_test_peer make BYTES   makes memory that can be exported, answers the descriptor of it, keeps it likewise
//   soft_test_peer import ""     imports descriptor kPeerFile, answers "held", keeps it likewise
//   soft_test_peer copy BYTES   copies from the memory of descriptor kPeerFile to that of the next one
//   soft_test_peer sms ""        answers how many multiprocessors it may use
//   soft_test_peer spin ""       runs a kernel that never ends, answers "runs", then the error that ends it
//   soft_test_peer fault ""      runs a kernel that writes nowhere, answers "runs", then the error
//   soft_test_peer work KIND     works in memory of this kind: see Worker
//   soft_test_peer lock PID      answers "asks", locks the process for a checkpoint, answers the result
//   soft_test_peer open HANDLE  opens an IPC handle given in hex, answers the first byte and sets it to 99
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "soft/testing/test_api.h"

namespace {

using namespace tessera::cuda;

void Check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::puts(ResultName(result));
  std::exit(1);
}

// Says something, and keeps what it has until it is let go.
void Hold(const std::string& said) {
  std::puts(said.c_str());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

void Allocate(std::size_t bytes) {
  CUdeviceptr memory = 0;
  Check(cuMemAlloc_v2(&memory, bytes));
  Hold("held");
}

CUmemGenericAllocationHandle Import(int file) {
  CUmemGenericAllocationHandle memory = 0;
  Check(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  return memory;
}

// Says which descriptor it has for the memory.
void Make(std::size_t bytes) {
  const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemGenericAllocationHandle memory = 0;
  Check(cuMemCreate(&memory, bytes, &properties, 0));
  int file = -1;
  Check(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  Hold(std::to_string(file));
}

// From the memory of its first descriptor to that of its second.
void CopyImported(std::size_t bytes) {
  constexpr CUmemAccessDesc kAccess = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr address = 0;
  Check(cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
  Check(cuMemMap(address, bytes, 0, Import(tessera::soft::kPeerFile), 0));
  Check(cuMemMap(address + bytes, bytes, 0, Import(tessera::soft::kPeerFile + 1), 0));
  Check(cuMemSetAccess(address, 2 * bytes, &kAccess, 1));
  Check(cuMemcpyDtoD_v2(address + bytes, address, bytes));
  Check(cuCtxSynchronize());
  std::puts("copied");
}

void Multiprocessors() {
  int count = 0;
  Check(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  Hold(std::to_string(count));
}

// `spin` reads a word until it is not 0, `poke` writes one, `count` adds 1 to each word.
constexpr const char* kKernels = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry spin(.param .u64 word) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [word];
again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
.visible .entry count(.param .u64 words) {
  .reg .b64 %rd<4>;
  .reg .b32 %r<6>;
  ld.param.u64 %rd1, [words];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r4, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%rd3], %r5;
  ret;
}
.visible .entry poke(.param .u64 word) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [word];
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

void RunKernel(const char* name, CUdeviceptr word) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  Check(cuModuleLoadData(&module, kKernels));
  Check(cuModuleGetFunction(&function, module, name));
  void* parameters[] = {&word};
  Check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  std::puts("runs");
  std::fflush(stdout);
  Hold(ResultName(cuCtxSynchronize()));
}

void Spin() {
  CUdeviceptr word = 0;
  Check(cuMemAlloc_v2(&word, 4));
  Check(cuMemsetD8_v2(word, 0, 4));
  RunKernel("spin", word);
}

// Adds 1 to each word of its memory, by a graph, for each byte of standard input. Answers how often it did if all words
// are right and the device has the UUID that it had at first, else what is wrong. The memory, which is kWorkerBytes, is
// "device" memory of cuMemAlloc, "own" of cuMemCreate, "shared" (the same, exported, the descriptor kept), "host"
// memory of cuMemCreate, "imported" from the descriptor kPeerFile, or "managed". The descriptor of what is shared is
// closed before the second answer. "absent" is own memory that is there while it works only: in between, its contents
// are in the program's own memory, and the address is reserved.
class Worker {
 public:
  explicit Worker(const std::string& kind) {
    Check(cuDeviceGetUuid_v2(&uuid_, 0));
    if (kind == "device") {
      Check(cuMemAlloc_v2(&memory_, tessera::soft::kWorkerBytes));
    } else if (kind == "managed") {
      Check(cuMemAllocManaged(&memory_, tessera::soft::kWorkerBytes, CU_MEM_ATTACH_GLOBAL));
    } else {
      Map(kind);
    }
    Check(cuMemsetD8_v2(memory_, 0, tessera::soft::kWorkerBytes));
    MakeGraph();
    absent_ = kind == "absent";
    if (absent_) Check(cuMemUnmap(memory_, tessera::soft::kWorkerBytes));
  }

  void Work() {
    std::puts("ready");
    std::fflush(stdout);
    for (char byte; read(STDIN_FILENO, &byte, 1) > 0;) {
      std::puts(Round().c_str());
      std::fflush(stdout);
    }
  }

 private:
  void Map(const std::string& kind) {
    constexpr CUmemAccessDesc kAccess = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = kind == "shared" ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
        .location = {kind == "host" ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle memory = 0;
    if (kind == "imported") {
      memory = Import(tessera::soft::kPeerFile);
    } else {
      Check(cuMemCreate(&memory, tessera::soft::kWorkerBytes, &properties, 0));
    }
    if (memory_ == 0) Check(cuMemAddressReserve(&memory_, tessera::soft::kWorkerBytes, 0, 0, 0));
    Check(cuMemMap(memory_, tessera::soft::kWorkerBytes, 0, memory, 0));
    Check(cuMemSetAccess(memory_, tessera::soft::kWorkerBytes, &kAccess, 1));
    if (kind == "shared")
      Check(cuMemExportToShareableHandle(&file_, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    Check(cuMemRelease(memory));
  }

  // Of a launch, between two events.
  void MakeGraph() {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    Check(cuModuleLoadData(&module, kKernels));
    Check(cuModuleGetFunction(&function, module, "count"));
    Check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    void* parameters[] = {&memory_};
    CUgraph graph = nullptr;
    Check(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    Check(cuLaunchKernel(function, kWords / 256, 1, 1, 256, 1, 1, 0, stream_, parameters, nullptr));
    Check(cuStreamEndCapture(stream_, &graph));
    Check(cuGraphInstantiateWithFlags(&exec_, graph, 0));
  }

  std::string Round() {
    if (absent_) {
      Map("own");
      Check(cuMemcpyHtoD_v2(memory_, words_.data(), tessera::soft::kWorkerBytes));
    }
    CUresult result = cuGraphLaunch(exec_, stream_);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream_);
    if (result == CUDA_SUCCESS) result = cuMemcpyDtoH_v2(words_.data(), memory_, tessera::soft::kWorkerBytes);
    if (absent_) Check(cuMemUnmap(memory_, tessera::soft::kWorkerBytes));
    CUuuid uuid = {};
    if (result == CUDA_SUCCESS) result = cuDeviceGetUuid_v2(&uuid, 0);
    if (result != CUDA_SUCCESS) return ResultName(result);
    ++rounds_;
    if (rounds_ == 2 && file_ >= 0) close(file_);
    if (std::ranges::count(words_, rounds_) != static_cast<std::ptrdiff_t>(kWords)) return "wrong words";
    if (std::memcmp(&uuid, &uuid_, sizeof uuid) != 0) return "another UUID";
    return std::to_string(rounds_);
  }

  static constexpr std::size_t kWords = tessera::soft::kWorkerBytes / 4;
  CUuuid uuid_ = {};
  CUdeviceptr memory_ = 0;
  int file_ = -1;
  bool absent_ = false;
  std::vector<std::uint32_t> words_ = std::vector<std::uint32_t>(kWords);
  CUstream stream_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::uint32_t rounds_ = 0;
};

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

// For a byte of standard input.
void Query() {
  std::puts("ready");
  std::fflush(stdout);
  char byte;
  if (read(STDIN_FILENO, &byte, 1) == 1) std::puts(ResultName(cuStreamQuery(nullptr)));
}

}  // namespace

int main(int, char** arguments) {
  Check(cuInit(0));
  CUcontext context = nullptr;
  Check(cuDevicePrimaryCtxRetain(&context, 0));
  Check(cuCtxSetCurrent(context));
  const std::string command = arguments[1];
  const std::string argument = arguments[2];
  const std::size_t bytes = std::strtoull(argument.c_str(), nullptr, 10);
  if (command == "hold") Allocate(bytes);
  if (command == "open") Open(argument);
  if (command == "make") Make(bytes);
  if (command == "sms") Multiprocessors();
  if (command == "spin") Spin();
  if (command == "fault") RunKernel("poke", 0);
  if (command == "copy") CopyImported(bytes);
  if (command == "lock") {
    std::puts("asks");
    std::fflush(stdout);
    std::puts(ResultName(cuCheckpointProcessLock(std::atoi(argument.c_str()), nullptr)));
  }
  if (command == "query") Query();
  if (command == "work") Worker(argument).Work();
  if (command == "import") {
    Import(tessera::soft::kPeerFile);
    Hold("held");
  }
}
