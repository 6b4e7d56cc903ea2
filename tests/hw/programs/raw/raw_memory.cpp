// Takes GPU memory from the driver's own library, past the shim, until it is refused: "raw_memory LIBRARY MOST_BYTES".
// Prints "got BYTES" and "refused ERROR" (0: it had all it wanted) and holds them until a line on standard input; then
// frees all, takes as much again and prints "again BYTES"; last it uses some of it: "works".
#include <algorithm>
#include <cstdint>
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

int main(int argc, char** argv) {
  WithoutShim(argv);
  if (argc < 3) return 2;
  const RealCuda real(argv[1]);
  const size_t most = std::strtoull(argv[2], nullptr, 10);
  RealContext(real);
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
