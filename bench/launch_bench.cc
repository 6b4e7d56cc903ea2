// The cost of one cuLaunchKernel, in nanoseconds: through the libcuda.so.1 that the process gets, the shim, and through
// the driver behind it, in turn in one process, so that all else is equal. Run under `tessera run` on a GPU, or with
// the shim preloaded over the stub driver (bench/run.py). Prints one JSON line.
//   launch_bench DRIVER [calls] [rounds]
// DRIVER: path of the driver's file by a name other than libcuda.so.1 or libcuda.so, such as libcuda.so.580.159.04.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "cuda/cuda_abi.h"

using namespace tessera;
using namespace tessera::cuda;

namespace {

template <typename Fn>
Fn Find(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (!address) {
    std::fprintf(stderr, "launch_bench: no %s\n", name);
    std::exit(1);
  }
  return reinterpret_cast<Fn>(address);
}

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "launch_bench: %s: error %d\n", what, result);
  std::exit(1);
}

constexpr char kEmpty[] = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n";

using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                            void**, void**);
using Synchronize = CUresult (*)();

// Nanoseconds per call over one batch, which fits into the GPU's queue: the calls are timed, not the GPU.
double Batch(Launch launch, Synchronize synchronize, CUfunction function) {
  constexpr int kCalls = 256;
  const Nanos start = MonotonicNow();
  for (int i = 0; i < kCalls; ++i) launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  const Nanos end = MonotonicNow();
  Check(synchronize(), "synchronize");
  return static_cast<double>(end - start) / kCalls;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: launch_bench DRIVER [batches]\n"), 2;
  const int batches = argc > 2 ? std::atoi(argv[2]) : 4000;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* driver = dlopen(argv[1], RTLD_NOW);
  if (!library || !driver) return std::fprintf(stderr, "launch_bench: %s\n", dlerror()), 1;
  CUdevice device;
  CUcontext context;
  Check(Find<CUresult (*)(unsigned)>(library, "cuInit")(0), "cuInit");
  Check(Find<CUresult (*)(CUdevice*, int)>(library, "cuDeviceGet")(&device, 0), "cuDeviceGet");
  Check(Find<CUresult (*)(CUcontext*, unsigned, CUdevice)>(library, "cuCtxCreate_v2")(&context, 0, device),
        "cuCtxCreate");
  CUfunction function = nullptr;
  CUmodule module;
  Check(Find<CUresult (*)(CUmodule*, const void*)>(library, "cuModuleLoadData")(&module, kEmpty), "cuModuleLoadData");
  Check(Find<CUresult (*)(CUfunction*, CUmodule, const char*)>(library, "cuModuleGetFunction")(&function, module,
                                                                                               "empty"),
        "cuModuleGetFunction");
  const auto through = Find<Launch>(library, "cuLaunchKernel"), bare = Find<Launch>(driver, "cuLaunchKernel");
  if (through == bare) return std::fprintf(stderr, "launch_bench: no shim in front of the driver\n"), 1;
  const auto synchronize = Find<Synchronize>(library, "cuCtxSynchronize");
  Check(through(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), "launch");
  std::vector<double> with, without, added;
  for (int i = 0; i < batches; ++i) {
    const bool first = i % 2 == 0;
    const double a = Batch(first ? through : bare, synchronize, function);
    const double b = Batch(first ? bare : through, synchronize, function);
    with.push_back(first ? a : b);
    without.push_back(first ? b : a);
    added.push_back(with.back() - without.back());
  }
  std::printf("{\"calls\": %d, \"ns_with\": %.2f, \"ns_without\": %.2f, \"ns_added\": %.2f}\n", batches * 256,
              Median(with), Median(without), Median(added));
}
