// The CPU's cost of issuing an empty kernel, in ns. Reads orders from standard input and answers each with a line:
//   batches N  N batches of 256 launches, the queue empty before each so that the GPU never slows the caller down: the
//              median over the batches of the time per call
//   wakes N    N single launches, each after 20 ms without work (when a vGPU's token is given back): median and p99
#include <algorithm>

#include "clock.h"
#include "driver.h"

constexpr int kBatch = 256;

struct Launcher {
  CUfunction empty;
  CUstream stream;

  void Launch() const { CU(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr)); }

  double Batch() const {
    double start = NowNs();
    for (int i = 0; i < kBatch; ++i) Launch();
    double taken = NowNs() - start;
    CU(cuStreamSynchronize(stream));
    return taken / kBatch;
  }

  double Wake() const {
    timespec idle = {0, 20'000'000};
    nanosleep(&idle, nullptr);
    double start = NowNs();
    Launch();
    double taken = NowNs() - start;
    CU(cuStreamSynchronize(stream));
    return taken;
  }
};

int main() {
  UseDevice();
  Kernels kernels;
  Launcher launcher = {kernels.empty, nullptr};
  CU(cuStreamCreate(&launcher.stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 50; ++i) launcher.Batch();
  std::printf("ready\n");
  std::fflush(stdout);
  char order[16];
  int count = 0;
  while (std::scanf("%15s %d", order, &count) == 2 && count > 0) {
    const bool wakes = std::strcmp(order, "wakes") == 0;
    std::vector<double> ns;
    for (int i = 0; i < count; ++i) ns.push_back(wakes ? launcher.Wake() : launcher.Batch());
    std::sort(ns.begin(), ns.end());
    std::printf("%.2f", ns[count / 2]);
    if (wakes) std::printf(" %.2f", ns[count * 99 / 100]);
    std::printf("\n");
    std::fflush(stdout);
  }
}
