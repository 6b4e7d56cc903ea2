// A program whose memory is large, for the checks of swapping. It says what it does with its memory and when.
//
// usage: swap BYTES [BLOCK]
//
// Allocates BYTES in blocks (1 GiB unless BLOCK says otherwise), fills them, says "ready PID SECONDS" and then does
// what the lines of stdin say, one after another; each is answered by one line, times in seconds of CLOCK_MONOTONIC:
//   pass N PART     N passes over the first PART (0..1) of the memory      passed BEGIN FIRST END   FIRST: its first
//   kernel's long SECONDS    one kernel that runs so long and then makes a pass     long BEGIN               when it
//   was launched wait            for that                                               waited END check compares every
//   word with what it must be               checked WRONG baseline BYTES  pinned copies out, in, both at once baseline
//   OUT IN BOTH     bytes a second costs           cuMemAlloc and cuMemFree of 1 KiB, 2 MiB, 1 GiB        costs A F A F
//   A F        microseconds, medians
#include <cuda_runtime.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

void Must(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::printf("error %s: %s\n", what, cudaGetErrorName(result));
  std::exit(1);
}

__global__ void Fill(std::uint32_t* words, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    words[i] = static_cast<std::uint32_t>(i) ^ seed;
}

__global__ void Pass(std::uint32_t* words, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    words[i] = words[i] * 3u + 1u;
}

// Shared memory, atomics and registers live across whatever happens to it meanwhile.
__global__ void Long(std::uint32_t* words, std::size_t count, long long nanoseconds) {
  __shared__ std::uint32_t kept[256];
  kept[threadIdx.x] = threadIdx.x * 7u + blockIdx.x;
  __syncthreads();
  long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  std::uint32_t sum = 0;
  do {
    sum += kept[(threadIdx.x + sum) & 255] & 1u;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
  __syncthreads();
  const bool right = kept[threadIdx.x] == threadIdx.x * 7u + blockIdx.x;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    if (right) words[i] = words[i] * 3u + 1u;
}

__global__ void Check(const std::uint32_t* words, std::size_t count, std::uint32_t seed, std::uint32_t passes,
                      unsigned long long* wrong) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint32_t expected = static_cast<std::uint32_t>(i) ^ seed;
    for (std::uint32_t k = 0; k < passes; ++k) expected = expected * 3u + 1u;
    if (words[i] != expected) atomicAdd(wrong, 1ull);
  }
}

struct Block {
  std::uint32_t* words = nullptr;
  std::size_t count = 0;
  std::uint32_t passes = 0;
};

constexpr int kGrid = 1056, kThreads = 256;

void Baseline(std::size_t bytes) {
  void *device[2], *host[2];
  cudaStream_t stream[2];
  for (int i = 0; i < 2; ++i) {
    Must(cudaMalloc(&device[i], bytes), "cudaMalloc");
    Must(cudaMallocHost(&host[i], bytes), "cudaMallocHost");
    Must(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking), "stream");
  }
  double rate[3];
  for (int kind = 0; kind < 3; ++kind) {
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      const double begin = Now();
      if (kind != 1) Must(cudaMemcpyAsync(host[0], device[0], bytes, cudaMemcpyDeviceToHost, stream[0]), "copy");
      if (kind != 0) Must(cudaMemcpyAsync(device[1], host[1], bytes, cudaMemcpyHostToDevice, stream[1]), "copy");
      Must(cudaDeviceSynchronize(), "copies");
      best = std::max(best, (kind == 2 ? 2 : 1) * bytes / (Now() - begin));
    }
    rate[kind] = best;
  }
  for (int i = 0; i < 2; ++i) {
    cudaFree(device[i]);
    cudaFreeHost(host[i]);
    cudaStreamDestroy(stream[i]);
  }
  std::printf("baseline %.0f %.0f %.0f\n", rate[0], rate[1], rate[2]);
}

void Costs() {
  std::printf("costs");
  for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{2} << 20, std::size_t{1} << 30}) {
    std::vector<double> allocate, free;
    for (int i = 0; i < 50; ++i) {
      void* memory;
      const double begin = Now();
      Must(cudaMalloc(&memory, bytes), "cudaMalloc");
      const double middle = Now();
      Must(cudaFree(memory), "cudaFree");
      allocate.push_back((middle - begin) * 1e6);
      free.push_back((Now() - middle) * 1e6);
    }
    std::sort(allocate.begin(), allocate.end());
    std::sort(free.begin(), free.end());
    std::printf(" %.1f %.1f", allocate[25], free[25]);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 0;
  const std::size_t block = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : std::size_t{1} << 30;
  const double begin = Now();
  std::vector<Block> blocks;
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t size = std::min(left, block);
    Block each;
    Must(cudaMalloc(&each.words, size), "cudaMalloc");
    each.count = size / 4;
    Fill<<<kGrid, kThreads>>>(each.words, each.count, static_cast<std::uint32_t>(blocks.size()) * 2654435761u);
    blocks.push_back(each);
    left -= size;
  }
  unsigned long long* wrong;
  Must(cudaMallocManaged(&wrong, sizeof *wrong), "managed");
  Must(cudaDeviceSynchronize(), "filling");
  std::printf("ready %d %.6f\n", getpid(), Now() - begin);
  char line[256];
  while (std::fgets(line, sizeof line, stdin)) {
    char word[32] = "";
    double a = 0, b = 1;
    std::sscanf(line, "%31s %lf %lf", word, &a, &b);
    const std::string order = word;
    if (order == "pass") {
      const std::size_t count = std::max<std::size_t>(1, static_cast<std::size_t>(b * blocks.size()));
      const double start = Now();
      double first = 0;
      for (int n = 0; n < static_cast<int>(a); ++n) {
        for (std::size_t i = 0; i < count && i < blocks.size(); ++i) {
          Pass<<<kGrid, kThreads>>>(blocks[i].words, blocks[i].count);
          ++blocks[i].passes;
          if (first != 0) continue;
          Must(cudaDeviceSynchronize(), "the first kernel");
          first = Now();
        }
        Must(cudaDeviceSynchronize(), "a pass");
      }
      std::printf("passed %.6f %.6f %.6f\n", start, first, Now());
    } else if (order == "long") {
      Long<<<132, 256>>>(blocks[0].words, blocks[0].count, static_cast<long long>(a * 1e9));
      ++blocks[0].passes;
      std::printf("long %.6f\n", Now());
    } else if (order == "wait") {
      Must(cudaDeviceSynchronize(), "the kernel");
      std::printf("waited %.6f\n", Now());
    } else if (order == "check") {
      *wrong = 0;
      for (std::size_t i = 0; i < blocks.size(); ++i)
        Check<<<kGrid, kThreads>>>(blocks[i].words, blocks[i].count, static_cast<std::uint32_t>(i) * 2654435761u,
                                   blocks[i].passes, wrong);
      Must(cudaDeviceSynchronize(), "the check");
      std::printf("checked %llu\n", *wrong);
    } else if (order == "baseline") {
      Baseline(static_cast<std::size_t>(a));
    } else if (order == "costs") {
      Costs();
    } else {
      std::printf("error what is %s\n", word);
    }
  }
  return 0;
}
