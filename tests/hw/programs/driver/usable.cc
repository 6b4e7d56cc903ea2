// "usable SECONDS": allocates and frees at random, as PyTorch, vLLM, RMM and JAX do in turn, and asks now and then for
// all that is free, less 2 %, in one block. Prints how often it got that for each of them, and the words that were
// wrong in blocks that stayed.
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

std::mt19937_64 random_words(5);
size_t Below(size_t bound) { return random_words() % bound; }

void DropOne() {
  if (!pieces.empty()) Drop(Below(pieces.size()));
}

void DropAll() {
  while (!pieces.empty()) Drop(pieces.size() - 1);
}

// Segments of 2 and 20 MiB and of multiples of 2 MiB, small allocations beside them; now and then empty_cache().
void Torch(int step, size_t total) {
  switch (Below(10)) {
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
      Take(2 * kMiB * (6 + Below(total / 40 / (2 * kMiB) + 1)));
      break;
    case 6:
      Take(4 + Below(1'500'000));
      break;
    default:
      DropOne();
  }
  if (step % 400 == 199) DropThose(20 * kMiB);
}

// Weights in pieces, then nine tenths of what is free in one block, small ones beside it; sleeps: all goes.
void Vllm(int step, size_t total) {
  const int phase = step % 100;
  if (phase == 0) DropAll();
  if (phase < 20) {
    Take(total / 100 + Below(total / 200));
  } else if (phase == 20) {
    Take(FreeBytes() / 10 * 9);
  } else if (Below(2) == 0) {
    Take(512 + Below(4 * kMiB));
  } else {
    DropOne();
  }
}

// Blocks that double, as a growing pool's, and many small ones of any size.
void Rmm(int step, size_t total) {
  if (step % 20 == 0) Take(std::min((size_t{1} << (20 + step / 20 % 12)) + 256 * Below(100), total / 8));
  if (Below(5) < 3) {
    Take(256 * (1 + Below(20'000)));
  } else {
    DropOne();
  }
  if (step % 300 == 250) DropAll();
}

// Three quarters of all in one block, or without that arena blocks of any size.
void Jax(int step, size_t total) {
  if (step % 200 == 0) {
    DropAll();
    Take(total / 4 * 3);
  } else if (step % 200 == 50) {
    DropAll();
  } else if (Below(2) == 0) {
    Take(256 * (1 + Below(total / 100 / 256)));
  } else {
    DropOne();
  }
}

struct Framework {
  const char* name;
  void (*step)(int step, size_t total);
};

}  // namespace

int main(int, char** argv) {
  UseDevice();
  constexpr Framework kFrameworks[] = {{"PyTorch", Torch}, {"vLLM", Vllm}, {"RMM", Rmm}, {"JAX", Jax}};
  const size_t total = FreeBytes();
  size_t largest = 0;
  int steps = 0;
  for (const Framework& framework : kFrameworks) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::atoi(argv[1]) * 250);
    int times = 0;
    for (int step = 0; std::chrono::steady_clock::now() < end; ++step, ++steps) {
      framework.step(step, total);
      if (step % 50 != 49) continue;
      const size_t free = FreeBytes(), asked = free / 100 * 98;
      if (asked == 0) continue;
      if (!Take(asked)) {
        std::printf("%s: %llu MiB are said to be free, and are not to be had in one block\n", framework.name,
                    MiB(free));
        return 1;
      }
      largest = std::max(largest, asked);
      Drop(pieces.size() - 1);
      ++times;
    }
    DropAll();
    std::printf("%s got %d ", framework.name, times);
  }
  std::printf("steps %d wrong %llu largest %llu\n", steps, static_cast<unsigned long long>(wrong), MiB(largest));
  return wrong == 0 ? 0 : 1;
}
