// Takes GPU memory from the driver's own library, past the shim, until it is refused: "raw_memory LIBRARY MOST_BYTES".
// Prints "got BYTES" and "refused ERROR" (0: it had all it wanted) and holds them until a line on standard input; then
// frees all, takes as much again and prints "again BYTES"; last it uses some of it: "works".
// "raw_memory LIBRARY MOST_BYTES churn" takes and frees that much, again and again, and prints "round N" each time, until
// it gets less: "less BYTES ERROR".
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "real_cuda.h"

constexpr size_t kMiB = size_t{1} << 20;

struct Taken {
  std::vector<CUdeviceptr> pieces;
  size_t bytes = 0;
  CUresult refused = CUDA_SUCCESS;
};

// In ever smaller pieces, down to the 2 MiB in which the driver allocates.
static Taken Take(const RealCuda& real, size_t most) {
  Taken taken;
  for (size_t piece = 64 * kMiB; piece >= 2 * kMiB; piece /= 2) {
    while (taken.bytes + piece <= most) {
      CUdeviceptr data = 0;
      const CUresult result = REAL_FUNCTION(real, cuMemAlloc)(&data, piece);
      if (result != CUDA_SUCCESS) {
        taken.refused = result;
        break;
      }
      taken.pieces.push_back(data);
      taken.bytes += piece;
    }
  }
  return taken;
}

static int Churn(const RealCuda& real, size_t most) {
  printf("ready %d\n", static_cast<int>(getpid()));
  for (int round = 1;; ++round) {
    const Taken taken = Take(real, most);
    for (CUdeviceptr piece : taken.pieces) REAL(real, cuMemFree, piece);
    if (taken.bytes < most) {
      printf("less %zu %d\n", taken.bytes, static_cast<int>(taken.refused));
      return 1;
    }
    printf("round %d\n", round);
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  WithoutShim(argv);
  if (argc < 3) return 2;
  const RealCuda real(argv[1]);
  const size_t most = std::strtoull(argv[2], nullptr, 10);
  RealContext(real);
  if (argc > 3 && std::strcmp(argv[3], "churn") == 0) return Churn(real, most);
  const Taken first = Take(real, most);
  printf("ready %d\ngot %zu\nrefused %d\n", static_cast<int>(getpid()), first.bytes, first.refused);
  fflush(stdout);
  char line[16];
  if (fgets(line, sizeof line, stdin) == nullptr) return 0;
  for (CUdeviceptr piece : first.pieces) REAL(real, cuMemFree, piece);
  const Taken second = Take(real, most);
  printf("again %zu\n", second.bytes);
  if (second.pieces.empty()) return 1;
  std::vector<uint32_t> words(1024);
  REAL(real, cuMemsetD32, second.pieces.back(), 0x7e55e7a, words.size());
  REAL(real, cuMemcpyDtoH, words.data(), second.pieces.back(), words.size() * 4);
  const bool right = std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0x7e55e7a; });
  printf("%s\n", right ? "works" : "WRONG");
  return right ? 0 : 1;
}
