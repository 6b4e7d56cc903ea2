// How long the first launch after an idle time takes: gate closed → token → launch. Run by bench/run.py under
// `tessera run` with the stub driver, so that the GPU costs nothing. The baseline is what the machine needs for nothing
// but waking another process and being woken by it, over the same kind of socket after the same idle time. Prints one
// JSON line, microseconds.
//   token_bench [samples]
#include <dlfcn.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "cuda/cuda_abi.h"

using namespace tessera;
using namespace tessera::cuda;

namespace {

const timespec kIdle{.tv_sec = 0, .tv_nsec = 20 * kMillisecond};  // longer than any idle grace: the token is given back

// One packet to another process and one back.
std::vector<double> BareRoundTrips(int samples) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) std::exit(1);
  char packet[16] = {};
  if (const pid_t child = fork(); child == 0) {
    close(ends[0]);
    while (read(ends[1], packet, sizeof packet) > 0 && write(ends[1], packet, sizeof packet) > 0) {
    }
    _exit(0);
  }
  close(ends[1]);
  std::vector<double> micros;
  for (int i = 0; i < samples; ++i) {
    nanosleep(&kIdle, nullptr);
    const Nanos start = MonotonicNow();
    if (write(ends[0], packet, sizeof packet) < 0 || read(ends[0], packet, sizeof packet) <= 0) std::exit(1);
    micros.push_back(static_cast<double>(MonotonicNow() - start) / kMicrosecond);
  }
  close(ends[0]);
  std::sort(micros.begin(), micros.end());
  return micros;
}

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
}

}  // namespace

int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 500;
  const std::vector<double> bare = BareRoundTrips(samples);
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
  std::printf(
      "{\"samples\": %d, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"bare_p50_us\": %.1f, \"bare_p99_us\": "
      "%.1f}\n",
      samples, Quantile(micros, .5), Quantile(micros, .9), Quantile(micros, .99), Quantile(bare, .5),
      Quantile(bare, .99));
}
