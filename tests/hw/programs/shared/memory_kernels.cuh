// Kernels for memory that may be moved while they run: of any size, of which they touch one word of every `stride`, so
// that a device that computes slowly can have much memory, too.
#pragma once

#include <cstdint>

#define EACH_OF(words)                                          \
  uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; \
  i < (words);                                                  \
  i += uint64_t{gridDim.x} * blockDim.x

extern "C" __global__ void Plant(uint32_t* data, uint64_t words, uint64_t stride, uint32_t seed) {
  for (EACH_OF(words)) data[i * stride] = static_cast<uint32_t>(i) ^ seed;
}

extern "C" __global__ void Grow(uint32_t* data, uint64_t words, uint64_t stride) {
  for (EACH_OF(words)) data[i * stride] = data[i * stride] * 3u + 1u;
}

// Grows once, after so long. What it keeps in shared memory and registers meanwhile must be there at the end.
extern "C" __global__ void GrowLate(uint32_t* data, uint64_t words, uint64_t stride, uint64_t nanoseconds) {
  __shared__ uint32_t kept[256];
  kept[threadIdx.x] = threadIdx.x * 7u + blockIdx.x;
  __syncthreads();
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  uint32_t sum = 0;
  do {
    sum += kept[(threadIdx.x + sum) & 255] & 1u;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
  __syncthreads();
  if (kept[threadIdx.x] != threadIdx.x * 7u + blockIdx.x || sum == ~0u) return;
  for (EACH_OF(words)) data[i * stride] = data[i * stride] * 3u + 1u;
}

// Adds to *wrong the words that are not what so many growths of what was planted give.
extern "C" __global__ void CountWrong(const uint32_t* data, uint64_t words, uint64_t stride, uint32_t seed,
                                      uint32_t growths, uint32_t* wrong) {
  for (EACH_OF(words)) {
    uint32_t expected = static_cast<uint32_t>(i) ^ seed;
    for (uint32_t n = 0; n < growths; ++n) expected = expected * 3u + 1u;
    if (data[i * stride] != expected) atomicAdd(wrong, 1u);
  }
}

// Each block turns its 256 words round in shared memory, `rounds` times.
extern "C" __global__ void TurnShared(uint32_t* data, uint64_t stride, uint32_t rounds) {
  __shared__ uint32_t kept[256];
  uint32_t* mine = data + (blockIdx.x * uint64_t{256} + threadIdx.x) * stride;
  kept[threadIdx.x] = *mine;
  for (uint32_t round = 0; round < rounds; ++round) {
    __syncthreads();
    const uint32_t next = kept[(threadIdx.x + 1) & 255];
    __syncthreads();
    kept[threadIdx.x] = next * 31u + round;
  }
  *mine = kept[threadIdx.x];
}

// Counts words by their low bits, all threads in the same 256 counters, and adds the words up beside them.
extern "C" __global__ void Tally(const uint32_t* data, uint64_t words, uint64_t stride, uint32_t* counters) {
  for (EACH_OF(words)) {
    const uint32_t word = data[i * stride];
    atomicAdd(&counters[word & 255], 1u);
    atomicAdd(&counters[256 + (i & 255)], word * 2654435761u);
  }
}

// A cooperative grid: in each round every block reads what others wrote in the round before. `arrived` begins as 0.
extern "C" __global__ void TurnTogether(uint32_t* from, uint32_t* to, uint64_t words, uint64_t stride, uint32_t rounds,
                                        volatile uint32_t* arrived) {
  for (uint32_t round = 0; round < rounds; ++round) {
    for (EACH_OF(words))
      reinterpret_cast<volatile uint32_t*>(to)[(i + 257) % words * stride] =
          reinterpret_cast<volatile uint32_t*>(from)[i * stride] * 31u + round;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(const_cast<uint32_t*>(arrived), 1u);
      while (*arrived < (round + 1) * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
    uint32_t* swap = from;
    from = to;
    to = swap;
  }
}

#undef EACH_OF
