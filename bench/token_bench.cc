// How long the first launch after an idle time takes: gate closed → token → launch. Run by bench/run.py under
// `tessera run` with the stub driver, so that the GPU costs nothing. Prints one JSON line, microseconds.
//   token_bench [samples]
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "cuda/cuda_abi.h"

using namespace tessera;
using namespace tessera::cuda;

int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 500;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return std::fprintf(stderr, "token_bench: %s\n", dlerror()), 1;
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(dlsym(library, "cuCtxCreate_v2"));
  const auto launch =
      reinterpret_cast<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    CUstream, void**, void**)>(dlsym(library, "cuLaunchKernel"));
  CUcontext context;
  if (init(0) != CUDA_SUCCESS || create(&context, 0, 0) != CUDA_SUCCESS) return std::fprintf(stderr, "no context\n"), 1;
  std::vector<double> micros;
  for (int i = 0; i < samples; ++i) {
    const timespec idle{.tv_sec = 0,
                        .tv_nsec = 20 * kMillisecond};  // longer than any idle grace: the token is given back
    nanosleep(&idle, nullptr);
    const Nanos start = MonotonicNow();
    if (launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS) return 1;
    micros.push_back(static_cast<double>(MonotonicNow() - start) / kMicrosecond);
  }
  std::sort(micros.begin(), micros.end());
  const auto at = [&](double q) {
    return micros[std::min(micros.size() - 1, static_cast<std::size_t>(q * micros.size()))];
  };
  std::printf("{\"samples\": %d, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n", samples,
              at(.5), at(.9), at(.99), micros.back());
}
