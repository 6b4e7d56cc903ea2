// Eight threads launch at once, each on a stream of its own and on its default stream. run.py builds this twice: with
// the legacy default stream and with one per thread.
#include <thread>

#include "device_words.h"

constexpr int kThreads = 8;
constexpr uint32_t kWords = 1 << 14;

static void Work(int thread, unsigned long long* sum) {
  cudaStream_t stream;
  RT(cudaStreamCreate(&stream));
  uint32_t* data;
  RT(cudaMalloc(&data, kWords * 4));
  Fill<<<8, 128, 0, stream>>>(data, kWords, thread);
  for (uint32_t i = 0; i < 1500; ++i) Mix<<<8, 128, 0, stream>>>(data, kWords, i);
  RT(cudaStreamSynchronize(stream));
  for (uint32_t i = 0; i < 500; ++i) Mix<<<8, 128>>>(data, kWords, i);
  RT(cudaStreamSynchronize(nullptr));
  for (uint32_t i = 0; i < 500; ++i) Mix<<<8, 128, 0, cudaStreamPerThread>>>(data, kWords, i);
  std::vector<uint32_t> host(kWords);
  RT(cudaMemcpyAsync(host.data(), data, kWords * 4, cudaMemcpyDeviceToHost, cudaStreamPerThread));
  RT(cudaStreamSynchronize(cudaStreamPerThread));
  *sum = Checksum(host.data(), kWords * 4);
  RT(cudaFree(data));
  RT(cudaStreamDestroy(stream));
}

int main() {
  unsigned long long sums[kThreads] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(Work, i, &sums[i]);
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) std::printf("thread %d %016llx\n", i, sums[i]);
}
