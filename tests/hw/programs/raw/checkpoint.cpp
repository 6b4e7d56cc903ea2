// The driver's own way to empty a GPU, for comparison: "checkpoint PID" brings all that the process has there to host
// memory and back. Prints "checkpoint OUT IN", seconds; status 77 where the driver has no such thing.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "clock.h"

static void* Find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* found = library ? dlsym(library, name) : nullptr;
  if (found) return found;
  std::printf("no %s\n", name);
  std::exit(77);
}

// Each call takes the process and what may be left out: arguments.
static void Do(const char* name, int pid) {
  const auto call = reinterpret_cast<CUresult (*)(int, void*)>(Find(name));
  const CUresult result = call(pid, nullptr);
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: CUDA error %d\n", name, result);
  std::exit(result == CUDA_ERROR_NOT_SUPPORTED ? 77 : 1);
}

int main(int argc, char** argv) {
  const int pid = argc > 1 ? std::atoi(argv[1]) : 0;
  reinterpret_cast<CUresult (*)(unsigned)>(Find("cuInit"))(0);
  const double begin = Now();
  Do("cuCheckpointProcessLock", pid);
  Do("cuCheckpointProcessCheckpoint", pid);
  const double middle = Now();
  Do("cuCheckpointProcessRestore", pid);
  Do("cuCheckpointProcessUnlock", pid);
  std::printf("checkpoint %.6f %.6f\n", middle - begin, Now() - middle);
}
