// away_calls: without Tessera. Tells what becomes of a call that a program makes while the driver has saved it
// (cuCheckpointProcessCheckpoint), for one call after the other, each in a process of its own. A line says for each:
// whether it waits, returns at once or ends the process, and whether the process works after its restore.
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <functional>

#include "driver.h"

namespace {

constexpr size_t kBytes = 1 << 20;
constexpr int kWait = 300, kLong = 5000;  // ms

struct Program {
  CUstream stream;
  CUevent done, other;
  CUdeviceptr memory;
  uint32_t* pinned;
  std::vector<uint32_t> plain = std::vector<uint32_t>(kBytes / 4);
};

struct Call {
  const char* name;
  std::function<int(Program&)> make;
};

const Call kCalls[] = {
    {"nothing", [](Program&) { return 0; }},
    {"cuEventQuery", [](Program& p) { return cuEventQuery(p.done); }},
    {"cuEventSynchronize", [](Program& p) { return cuEventSynchronize(p.done); }},
    {"cuEventElapsedTime",
     [](Program& p) {
       float ms;
       return cuEventElapsedTime(&ms, p.done, p.other);
     }},
    {"cuEventRecord", [](Program& p) { return cuEventRecord(p.done, p.stream); }},
    {"cuEventCreate",
     [](Program&) {
       CUevent e;
       return cuEventCreate(&e, 0);
     }},
    {"cuStreamQuery", [](Program& p) { return cuStreamQuery(p.stream); }},
    {"cuStreamSynchronize", [](Program& p) { return cuStreamSynchronize(p.stream); }},
    {"cuStreamWaitEvent", [](Program& p) { return cuStreamWaitEvent(p.stream, p.done, 0); }},
    {"cuStreamCreate",
     [](Program&) {
       CUstream s;
       return cuStreamCreate(&s, 0);
     }},
    {"cuStreamGetFlags",
     [](Program& p) {
       unsigned f;
       return cuStreamGetFlags(p.stream, &f);
     }},
    {"cuCtxSynchronize", [](Program&) { return cuCtxSynchronize(); }},
    {"cuCtxGetCurrent",
     [](Program&) {
       CUcontext c;
       return cuCtxGetCurrent(&c);
     }},
    {"cuCtxSetCurrent",
     [](Program&) {
       CUcontext c;
       cuCtxGetCurrent(&c);
       return cuCtxSetCurrent(c);
     }},
    {"cuCtxGetDevice",
     [](Program&) {
       CUdevice d;
       return cuCtxGetDevice(&d);
     }},
    {"cuMemsetD32Async", [](Program& p) { return cuMemsetD32Async(p.memory, 9, kBytes / 4, p.stream); }},
    {"cuMemcpyHtoD", [](Program& p) { return cuMemcpyHtoD(p.memory, p.plain.data(), kBytes); }},
    {"cuMemcpyDtoHAsync", [](Program& p) { return cuMemcpyDtoHAsync(p.pinned, p.memory, kBytes, p.stream); }},
    {"cuMemAlloc",
     [](Program&) {
       CUdeviceptr m;
       return cuMemAlloc(&m, 1024);
     }},
    {"cuMemAlloc of 64 MiB",
     [](Program&) {
       CUdeviceptr m;
       return cuMemAlloc(&m, 64 << 20);
     }},
    {"cuMemHostAlloc",
     [](Program&) {
       void* m;
       return cuMemHostAlloc(&m, 4096, 0);
     }},
    {"cuMemGetInfo",
     [](Program&) {
       size_t a, b;
       return cuMemGetInfo(&a, &b);
     }},
    {"cuPointerGetAttribute",
     [](Program& p) {
       unsigned type;
       return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p.memory);
     }},
    {"cuDeviceGetAttribute",
     [](Program&) {
       int value;
       return cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
     }},
    {"cuDriverGetVersion",
     [](Program&) {
       int v;
       return cuDriverGetVersion(&v);
     }},
    {"cuGetErrorName",
     [](Program&) {
       const char* n;
       return cuGetErrorName(CUDA_SUCCESS, &n);
     }},
    {"cuLaunchHostFunc", [](Program& p) { return cuLaunchHostFunc(p.stream, [](void*) {}, nullptr); }},
    {"a read of pinned memory", [](Program& p) { return *static_cast<volatile uint32_t*>(p.pinned) == 7 ? 0 : -1; }},
    {"a write of pinned memory", [](Program& p) { return *static_cast<volatile uint32_t*>(p.pinned) = 7, 0; }},
};

Program Start() {
  UseDevice();
  Program p;
  CU(cuStreamCreate(&p.stream, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&p.done, CU_EVENT_BLOCKING_SYNC));
  CU(cuEventCreate(&p.other, CU_EVENT_BLOCKING_SYNC));
  CU(cuMemAlloc(&p.memory, kBytes));
  void* pinned;
  CU(cuMemHostAlloc(&pinned, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  p.pinned = static_cast<uint32_t*>(pinned);
  CU(cuMemsetD32Async(p.memory, 7, kBytes / 4, p.stream));
  CU(cuEventRecord(p.done, p.stream));
  CU(cuMemcpyDtoHAsync(p.pinned, p.memory, kBytes, p.stream));
  CU(cuEventRecord(p.other, p.stream));
  CU(cuStreamSynchronize(p.stream));
  return p;
}

bool Works(Program& p) {
  if (cuMemsetD32Async(p.memory, 11, kBytes / 4, p.stream) != CUDA_SUCCESS) return false;
  if (cuMemcpyDtoHAsync(p.pinned, p.memory, kBytes, p.stream) != CUDA_SUCCESS) return false;
  return cuStreamSynchronize(p.stream) == CUDA_SUCCESS && p.pinned[kBytes / 8] == 11;
}

// -1: nothing came within `most` ms; -2: the other end has gone.
int Hear(int from, int most) {
  pollfd poll_for = {from, POLLIN, 0};
  if (poll(&poll_for, 1, most) == 0) return -1;
  char byte;
  return read(from, &byte, 1) == 1 ? byte : -2;
}

void Child(const Call& call, int orders, int answers) {
  Program p = Start();
  const bool read_after = strncmp(call.name, "a write", 7) == 0;
  EXPECT(write(answers, "r", 1) == 1);
  if (Hear(orders, 60000) < 0) std::_Exit(1);
  const int result = call.make(p);
  const char code = static_cast<char>(result == 0 ? 0 : 1);
  if (result > 0) std::printf("  %s: %s\n", call.name, Name(static_cast<CUresult>(result)));
  std::fflush(stdout);
  EXPECT(write(answers, &code, 1) == 1);
  if (Hear(orders, 60000) < 0) std::_Exit(1);
  if (read_after && p.pinned[0] != 7) std::printf("  what was written to pinned memory is lost\n");
  std::fflush(stdout);
  std::_Exit(Works(p) ? 0 : 1);
}

using Checkpoint = CUresult (*)(int, void*);
Checkpoint Find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Checkpoint>(dlsym(library, name));
}

void Try(size_t index) {
  int orders[2], answers[2];
  EXPECT(pipe(orders) == 0 && pipe(answers) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(orders[1]);
    close(answers[0]);
    Child(kCalls[index], orders[0], answers[1]);
  }
  close(orders[0]);
  close(answers[1]);
  EXPECT(Hear(answers[0], 60000) == 'r');
  const pid_t saver = fork();  // a process that has CUDA makes no children that can use it
  if (saver == 0) {
    CU(cuInit(0));
    CU(Find("cuCheckpointProcessLock")(pid, nullptr));
    CU(Find("cuCheckpointProcessCheckpoint")(pid, nullptr));
    EXPECT(write(orders[1], "g", 1) == 1);
    const int came = Hear(answers[0], kWait);
    std::printf("%s: %s", kCalls[index].name,
                came == -1   ? "waits"
                : came == -2 ? "ENDS THE PROCESS"
                : came == 0  ? "returns"
                             : "returns an error");
    std::fflush(stdout);
    const CUresult restored = came == -2 ? CUDA_SUCCESS : Find("cuCheckpointProcessRestore")(pid, nullptr);
    if (restored == CUDA_SUCCESS && came != -2) CU(Find("cuCheckpointProcessUnlock")(pid, nullptr));
    if (restored != CUDA_SUCCESS) std::printf("; restore: %s", Name(restored));
    if (came == -1) {
      const int later = Hear(answers[0], kLong);
      std::printf("; after the restore it %s", later == -1   ? "waits still"
                                               : later == -2 ? "ENDS THE PROCESS"
                                               : later == 0  ? "returns"
                                                             : "returns an error");
    }
    std::fflush(stdout);
    if (write(orders[1], "g", 1) != 1) std::printf("; it has ended");
    std::_Exit(0);
  }
  close(orders[1]);
  close(answers[0]);
  int status = 0;
  waitpid(saver, &status, 0);
  for (int i = 0; i < 50; ++i) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) {
      if (WIFSIGNALED(status)) std::printf("; signal %d\n", WTERMSIG(status));
      if (WIFEXITED(status)) std::printf("; then it %s\n", WEXITSTATUS(status) == 0 ? "works" : "FAILS");
      std::fflush(stdout);
      return;
    }
    usleep(100'000);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  std::printf("; then it HANGS\n");
  std::fflush(stdout);
}

}  // namespace

int main() {
  signal(SIGPIPE, SIG_IGN);
  for (size_t i = 0; i < sizeof kCalls / sizeof *kCalls; ++i) Try(i);
}
