// "usable SECONDS": allocates and frees at random, as frameworks do, and asks now and then for all that is free, less
// 2 %, in one block. Prints how often it got that, and the words that were wrong in blocks that stayed.
#include <algorithm>
#include <chrono>
#include <random>

#include "driver.h"

namespace {

struct Piece {
  CUdeviceptr data = 0;
  size_t bytes = 0;
  uint32_t word = 0;
};

std::vector<Piece> pieces;
uint64_t wrong = 0;
uint32_t next_word = 1;

bool Take(size_t bytes) {
  Piece piece;
  piece.bytes = bytes;
  piece.word = next_word++;
  if (cuMemAlloc(&piece.data, bytes) != CUDA_SUCCESS) return false;
  CU(cuMemsetD32(piece.data, piece.word, 1));
  CU(cuMemsetD32(piece.data + (bytes - 4) / 4 * 4, piece.word, 1));
  pieces.push_back(piece);
  return true;
}

void Drop(size_t index) {
  uint32_t found[2] = {};
  const Piece piece = pieces[index];
  CU(cuMemcpyDtoH(&found[0], piece.data, 4));
  CU(cuMemcpyDtoH(&found[1], piece.data + (piece.bytes - 4) / 4 * 4, 4));
  wrong += (found[0] != piece.word) + (found[1] != piece.word);
  CU(cuMemFree(piece.data));
  pieces[index] = pieces.back();
  pieces.pop_back();
}

// Frees the blocks of one size, as PyTorch's empty_cache() does.
void DropThose(size_t bytes) {
  for (size_t i = pieces.size(); i-- > 0;) {
    if (pieces[i].bytes == bytes) Drop(i);
  }
}

unsigned long long MiB(size_t bytes) { return static_cast<unsigned long long>(bytes) / kMiB; }

}  // namespace

int main(int, char** argv) {
  UseDevice();
  std::mt19937_64 random(5);
  size_t total = FreeBytes(), largest = 0;
  const size_t large = total / 40;
  int times = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  for (int step = 0; std::chrono::steady_clock::now() < end; ++step) {
    switch (random() % 10) {
      case 0:
      case 1:
      case 2:
        Take(2 * kMiB);
        break;
      case 3:
      case 4:
        Take(20 * kMiB);
        break;
      case 5:
        Take(2 * kMiB * (6 + random() % (large / (2 * kMiB) + 1)));
        break;
      case 6:
        Take(4 + random() % 1'500'000);
        break;
      default:
        if (!pieces.empty()) Drop(random() % pieces.size());
    }
    if (step % 400 == 199) DropThose(20 * kMiB);
    if (step % 100 != 99) continue;
    const size_t free = FreeBytes(), asked = free / 100 * 98;
    if (asked == 0) continue;
    if (!Take(asked)) {
      std::printf("%llu MiB are said to be free, and are not to be had in one block\n", MiB(free));
      return 1;
    }
    largest = std::max(largest, asked);
    Drop(pieces.size() - 1);
    ++times;
  }
  while (!pieces.empty()) Drop(pieces.size() - 1);
  std::printf("got %d wrong %llu largest %llu\n", times, static_cast<unsigned long long>(wrong), MiB(largest));
  return wrong == 0 ? 0 : 1;
}
