// Allocates, fills, changes, checks and frees, for ever: "churn MOST_BYTES [SEED]". One count is one round whose words
// were right; ordered about as orders.h says. What is refused for want of memory is tried again.
#include <algorithm>

#include "driver.h"
#include "orders.h"

constexpr uint32_t kWords = 1 << 13;

// The value of word i after Fill and three times Mix.
static uint32_t Expected(uint32_t i, uint32_t seed) {
  uint32_t word = (i ^ seed) * 2654435761u;
  for (uint32_t k = 0; k < 3; ++k) word = word * 31u + (seed + k);
  return word;
}

int main(int argc, char** argv) {
  const size_t most = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64 * kMiB;
  uint32_t random = argc > 2 ? static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)) : 1;
  UseDevice();
  Kernels kernels;
  TakeOrders(0);
  unsigned long long wrong = 0;
  std::vector<uint32_t> host(kWords);
  while (!OrderedToEnd()) {
    random = random * 1664525u + 1013904223u;
    const size_t bytes = std::max<size_t>(size_t{kWords} * 4, (random >> 8) % most);
    const size_t words_in = bytes / 4 - kWords;
    const CUdeviceptr offset = words_in == 0 ? 0 : (random >> 4) % words_in * 4;
    CUdeviceptr data = 0;
    const CUresult got = cuMemAlloc(&data, bytes);
    if (got == CUDA_ERROR_OUT_OF_MEMORY) {
      usleep(1000);
      continue;
    }
    CU(got);
    kernels.Launch(kernels.fill, data + offset, kWords, random);
    for (uint32_t k = 0; k < 3; ++k) kernels.Launch(kernels.mix, data + offset, kWords, random + k);
    CU(cuMemcpyDtoH(host.data(), data + offset, size_t{kWords} * 4));
    for (uint32_t i = 0; i < kWords; ++i) wrong += host[i] != Expected(i, random);
    CU(cuMemFree(data));
    CountWork(1);
  }
  return ReportDone(wrong == 0);
}
