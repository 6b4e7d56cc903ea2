// What one cuLaunchKernel costs, in nanoseconds: through whatever libcuda.so.1 the process gets. Run it with the stub
// driver (and with the shim in front of it, see bench/run.py), or on a GPU. Prints one JSON line.
//   launch_bench [calls] [rounds]
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

}  // namespace

int main(int argc, char** argv) {
  const long calls = argc > 1 ? std::atol(argv[1]) : 1'000'000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    std::fprintf(stderr, "launch_bench: %s\n", dlerror());
    return 1;
  }
  CUdevice device;
  CUcontext context;
  Check(Find<CUresult (*)(unsigned)>(library, "cuInit")(0), "cuInit");
  Check(Find<CUresult (*)(CUdevice*, int)>(library, "cuDeviceGet")(&device, 0), "cuDeviceGet");
  Check(Find<CUresult (*)(CUcontext*, unsigned, CUdevice)>(library, "cuCtxCreate_v2")(&context, 0, device),
        "cuCtxCreate");
  CUfunction function = nullptr;
  if (auto* load = reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(dlsym(library, "cuModuleLoadData"))) {
    CUmodule module;  // the stub has no modules and needs none
    if (load(&module, kEmpty) == CUDA_SUCCESS)
      Check(Find<CUresult (*)(CUfunction*, CUmodule, const char*)>(library, "cuModuleGetFunction")(&function, module,
                                                                                                   "empty"),
            "cuModuleGetFunction");
  }
  const auto launch = Find<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, CUstream, void**, void**)>(library, "cuLaunchKernel");
  std::vector<double> per_call;
  for (int round = 0; round <= rounds; ++round) {
    const Nanos start = MonotonicNow();
    for (long i = 0; i < calls; ++i) Check(launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), "launch");
    if (round > 0) per_call.push_back(static_cast<double>(MonotonicNow() - start) / calls);  // the first one warms up
  }
  std::sort(per_call.begin(), per_call.end());
  std::printf("{\"calls\": %ld, \"ns_per_call\": %.2f, \"ns_min\": %.2f, \"ns_max\": %.2f}\n", calls,
              per_call[per_call.size() / 2], per_call.front(), per_call.back());
}
