// Reads and writes an array again and again, and says every 100 ms how often: sweep BYTES SECONDS. What bounds it is
// the memory's bandwidth, or that of the cache if the array fits.
#include <cstdlib>

#include "check.h"
#include "clock.h"

static __global__ void Sweep(uint4* data, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    uint4 value = data[i];
    value.x += 1;
    data[i] = value;
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t bytes = std::strtoull(argv[1], nullptr, 10);
  const double end = Now() + std::atof(argv[2]);
  uint4* data;
  RT(cudaMalloc(&data, bytes));
  RT(cudaMemset(data, 0, bytes));
  constexpr double kBatchS = 1e-3, kBandwidth = 2e12;
  const int batch = static_cast<int>(kBatchS * kBandwidth / (2.0 * static_cast<double>(bytes))) + 1;
  cudaEvent_t ahead[2];
  for (cudaEvent_t& each : ahead) RT(cudaEventCreateWithFlags(&each, cudaEventDisableTiming | cudaEventBlockingSync));
  unsigned long long sweeps = 0;
  double told = 0;
  for (int turn = 0; Now() < end; turn ^= 1) {
    RT(cudaEventSynchronize(ahead[turn]));
    if (sweeps && Now() >= told + 0.1) {
      told = Now();
      std::printf("%.6f %llu\n", told, sweeps);
      std::fflush(stdout);
    }
    for (int i = 0; i < batch; ++i) Sweep<<<2112, 256>>>(data, bytes / sizeof(uint4));
    RT(cudaGetLastError());
    RT(cudaEventRecord(ahead[turn]));
    sweeps += static_cast<unsigned long long>(batch);
  }
  RT(cudaDeviceSynchronize());
  uint4 last;
  RT(cudaMemcpy(&last, data + bytes / sizeof(uint4) - 1, sizeof last, cudaMemcpyDeviceToHost));
  std::printf("sweeps %s\n", last.x == static_cast<unsigned>(sweeps) ? "right" : "WRONG");
  return last.x == static_cast<unsigned>(sweeps) ? 0 : 1;
}
