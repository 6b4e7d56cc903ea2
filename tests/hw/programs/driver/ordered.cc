// Allocates, fills, changes, reads and frees in the order of two streams, and waits only now and then: "ordered
// MOST_BYTES [SEED]". One count is one round of pieces whose words were right; ordered about as orders.h says. Prints
// "sum NUMBER" of the first round, which must be the same wherever the program runs. "ordered MOST_BYTES SEED cost"
// prints what an allocation and its free cost, in ns, and ends.
#include <time.h>

#include <algorithm>

#include "driver.h"
#include "orders.h"

namespace {

constexpr uint32_t kWords = 1 << 13;
constexpr size_t kPieceBytes = size_t{kWords} * 4;
constexpr int kPieces = 64;

class Ordered {
 public:
  Ordered(size_t most, uint32_t seed) : most_(most), random_(seed) {
    for (CUstream& stream : streams_) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&host_), kPieces * kPieceBytes, 0));
  }

  // A number that depends on every word.
  unsigned long long Round() {
    for (int i = 0; i < kPieces; ++i) {
      random_ = random_ * 1664525u + 1013904223u;
      Piece(i, static_cast<uint32_t>(i + 1));
    }
    for (CUstream stream : streams_) CU(cuStreamSynchronize(stream));
    return Checksum(host_, kPieces * kPieceBytes);
  }

  // Medians of allocations and frees in one stream, of the largest size, without anything between them.
  void Cost() {
    std::vector<uint64_t> allocations, frees;
    for (int i = 0; i < 20'000; ++i) {
      CUdeviceptr data = 0;
      const uint64_t begin = Now();
      CU(cuMemAllocAsync(&data, most_, streams_[0]));
      const uint64_t between = Now();
      CU(cuMemFreeAsync(data, streams_[0]));
      allocations.push_back(between - begin);
      frees.push_back(Now() - between);
    }
    for (auto* each : {&allocations, &frees}) std::nth_element(each->begin(), each->begin() + 10'000, each->end());
    std::printf("cost %llu %llu\n", static_cast<unsigned long long>(allocations[10'000]),
                static_cast<unsigned long long>(frees[10'000]));
  }

 private:
  static uint64_t Now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  }

  // Its memory is freed on its own stream, or on the other one, which waits for it before.
  void Piece(int i, uint32_t value) {
    const CUstream stream = streams_[random_ >> 8 & 1], other = streams_[~random_ >> 8 & 1];
    const size_t bytes = std::max<size_t>(kPieceBytes, most_ >> (random_ >> 12 & 3));
    CUdeviceptr data = 0;
    CU(cuMemAllocAsync(&data, bytes, stream));
    const CUdeviceptr at = data + bytes - kPieceBytes;
    kernels_.Launch(kernels_.fill, at, kWords, value, stream);
    for (uint32_t k = 0; k < 3; ++k) kernels_.Launch(kernels_.mix, at, kWords, value + k, stream);
    CU(cuMemcpyDtoHAsync(host_ + static_cast<size_t>(i) * kPieceBytes, at, kPieceBytes, stream));
    if ((random_ >> 16 & 3) == 0) {
      CU(cuEventRecord(event_, stream));
      CU(cuStreamWaitEvent(other, event_, 0));
      CU(cuMemFreeAsync(data, other));
    } else {
      CU(cuMemFreeAsync(data, stream));
    }
  }

  const size_t most_;
  uint32_t random_;
  Kernels kernels_;
  CUstream streams_[2];
  CUevent event_;
  char* host_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const size_t most = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 64 * kMiB;
  UseDevice();
  Ordered ordered(most, argc > 2 ? static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)) : 1);
  if (argc > 3) return ordered.Cost(), 0;
  const unsigned long long sum = ordered.Round();
  std::printf("sum %016llx\n", sum);
  TakeOrders(0);
  bool right = true;
  while (!OrderedToEnd()) {
    right = ordered.Round() == sum && right;
    CountWork(1);
  }
  return ReportDone(right);
}
