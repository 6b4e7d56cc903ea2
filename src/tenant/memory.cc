#include "tenant/memory.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

namespace tessera::tenant {
namespace {

constexpr unsigned kThreads = 128;
constexpr std::uint64_t kSeed = 0x7465737365726100;

// Enough blocks for every word to have a thread, up to what keeps a large GPU busy.
unsigned BlocksFor(std::uint64_t words) { return std::clamp<std::uint64_t>((words + kThreads - 1) / kThreads, 1, 264); }

}  // namespace

Pattern::Pattern(Driver& driver, std::uint64_t bytes, std::uint64_t stride, bool waits)
    : driver_(driver), words_(bytes / stride), stride_(stride) {
  const cuda::CUresult result = driver_.MemAlloc(&base_, bytes);
  if (result == cuda::CUDA_ERROR_OUT_OF_MEMORY) {
    base_ = 0;
    return;
  }
  Must(result, "cuMemAlloc");
  std::uint64_t seed = kSeed;
  void* parameters[] = {&base_, &words_, &stride_, &seed};
  driver_.Launch(driver_.Kernel("fill"), BlocksFor(words_), kThreads, parameters);
  if (waits) Must(driver_.CtxSynchronize(), "cuCtxSynchronize");
}

Pattern::~Pattern() {
  if (base_) driver_.MemFree(base_);
}

bool Pattern::Verify() const {
  cuda::CUdeviceptr wrong = 0;
  std::uint32_t count = 0;
  Must(driver_.MemAlloc(&wrong, sizeof count), "cuMemAlloc");
  Must(driver_.MemcpyHtoD(wrong, &count, sizeof count), "cuMemcpyHtoD");
  cuda::CUdeviceptr base = base_;
  std::uint64_t words = words_, stride = stride_, seed = kSeed;
  void* parameters[] = {&base, &words, &stride, &seed, &wrong};
  driver_.Launch(driver_.Kernel("check"), BlocksFor(words_), kThreads, parameters);
  Must(driver_.MemcpyDtoH(&count, wrong, sizeof count), "cuMemcpyDtoH");
  Must(driver_.MemFree(wrong), "cuMemFree");
  return count == 0;
}

std::uint64_t GrabUntilRefused(Driver& driver, std::uint64_t chunk, unsigned hold_us) {
  std::vector<cuda::CUdeviceptr> pieces;
  for (;;) {
    cuda::CUdeviceptr piece = 0;
    const cuda::CUresult result = driver.MemAlloc(&piece, chunk);
    if (result == cuda::CUDA_ERROR_OUT_OF_MEMORY) break;
    Must(result, "cuMemAlloc");
    pieces.push_back(piece);
  }
  if (hold_us) usleep(hold_us);
  for (const cuda::CUdeviceptr piece : pieces) Must(driver.MemFree(piece), "cuMemFree");
  return pieces.size() * chunk;
}

}  // namespace tessera::tenant
