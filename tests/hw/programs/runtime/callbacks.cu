// Host functions and stream callbacks run in stream order and see what the kernels before them wrote.
#include "device_words.h"

struct Note {
  std::vector<uint32_t>* seen;
  const volatile uint32_t* word;
};

static void See(void* argument) {
  Note* note = static_cast<Note*>(argument);
  note->seen->push_back(uint32_t{*note->word});
}
static void SeeWithStatus(cudaStream_t, cudaError_t status, void* argument) {
  EXPECT(status == cudaSuccess);
  See(argument);
}

__global__ void Store(uint32_t* word, uint32_t value) { *word = value; }

int main() {
  uint32_t* word;
  RT(cudaHostAlloc(&word, 4, cudaHostAllocMapped));
  cudaStream_t stream;
  RT(cudaStreamCreate(&stream));
  std::vector<uint32_t> seen;
  Note note{&seen, word};
  for (uint32_t i = 0; i < 200; ++i) {
    Store<<<1, 1, 0, stream>>>(word, i * i);
    if (i % 2) {
      RT(cudaLaunchHostFunc(stream, See, &note));
    } else {
      RT(cudaStreamAddCallback(stream, SeeWithStatus, &note, 0));
    }
  }
  RT(cudaStreamSynchronize(stream));
  EXPECT(seen.size() == 200);
  for (uint32_t i = 0; i < 200; ++i) EXPECT(seen[i] == i * i);
  std::printf("callbacks %zu %016llx\n", seen.size(), Checksum(seen.data(), seen.size() * 4));
}
