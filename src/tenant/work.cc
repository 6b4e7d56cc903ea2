#include "tenant/work.h"

#include <algorithm>
#include <utility>

#include "tenant/recurrence.h"

namespace tessera::tenant {

Work::Work(Driver& driver, WorkShape shape)
    : driver_(driver), shape_(shape), kernel_(driver.Kernel(shape.sweep ? "sweep" : "work")) {
  if (shape.sweep) {
    Must(driver_.MemAlloc(&state_, shape.sweep), "cuMemAlloc of --sweep");
    Must(driver_.MemsetD32(state_, 0, shape.sweep / 4), "cuMemsetD32");
    return;
  }
  std::vector<std::uint32_t> seeds(std::size_t{shape.blocks} * shape.threads);
  for (std::size_t i = 0; i < seeds.size(); ++i) seeds[i] = static_cast<std::uint32_t>(i);
  const std::size_t bytes = seeds.size() * sizeof seeds[0];
  Must(driver_.MemAlloc(&state_, bytes), "cuMemAlloc");
  Must(driver_.MemcpyHtoD(state_, seeds.data(), bytes), "cuMemcpyHtoD");
}

std::uint32_t Work::Calibrate(Driver& driver, WorkShape shape, Nanos kernel_time) {
  const auto timed = [&](std::uint32_t iterations) {
    shape.iterations = iterations;
    Work work(driver, shape);
    work.Submit(1, 1);  // the first launch also loads code
    work.Drain();
    const Nanos begin = MonotonicNow();
    work.Submit(4, 1);
    work.Drain();
    Must(driver.MemFree(work.state_), "cuMemFree");
    return (MonotonicNow() - begin) / 4;
  };
  std::uint64_t iterations = 64;
  Nanos took = timed(iterations);
  while (took < kernel_time / 2 && iterations < (1u << 30)) {
    iterations *= 2;
    took = timed(iterations);
  }
  return static_cast<std::uint32_t>(std::clamp<double>(1.0 * iterations * kernel_time / took, 1, UINT32_MAX));
}

void Work::Submit(unsigned launches, unsigned ahead) {
  while (under_way_.size() >= std::max(ahead, 1u)) WaitForOldest();
  std::uint32_t iterations = shape_.iterations;
  std::uint64_t quads = shape_.sweep / 16;
  void* parameters[] = {&state_, shape_.sweep ? static_cast<void*>(&quads) : &iterations};
  for (unsigned i = 0; i < launches; ++i) driver_.Launch(kernel_, shape_.blocks, shape_.threads, parameters);
  cuda::CUevent end = nullptr;
  if (free_events_.empty()) {
    Must(driver_.EventCreate(&end, cuda::CU_EVENT_BLOCKING_SYNC | cuda::CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  } else {
    end = free_events_.back();
    free_events_.pop_back();
  }
  Must(driver_.EventRecord(end, nullptr), "cuEventRecord");
  under_way_.push_back({end, launches});
}

void Work::WaitForOldest() {
  const Batch oldest = under_way_.front();
  Must(driver_.EventSynchronize(oldest.end), "cuEventSynchronize");
  completed_ += oldest.launches;
  const Nanos before = std::exchange(ended_at_, MonotonicNow());
  if (before != 0) longest_gap_ = std::max(longest_gap_, ended_at_ - before);
  free_events_.push_back(oldest.end);
  under_way_.erase(under_way_.begin());
}

void Work::Drain() {
  while (!under_way_.empty()) WaitForOldest();
}

bool Work::VerifySweep() {
  std::vector<std::uint32_t> words(std::min<std::uint64_t>(shape_.sweep / 4, 1 << 16));
  const std::size_t bytes = words.size() * sizeof words[0];
  for (const std::uint64_t at : {std::uint64_t{0}, (shape_.sweep - bytes) / 32 * 16, shape_.sweep - bytes}) {
    Must(driver_.MemcpyDtoH(words.data(), state_ + at, bytes), "cuMemcpyDtoH");
    if (!std::ranges::all_of(words, [&](std::uint32_t word) { return word == static_cast<std::uint32_t>(completed_); }))
      return false;
  }
  return true;
}

bool Work::Verify() {
  Drain();
  if (shape_.sweep) return VerifySweep();
  std::vector<std::uint32_t> results(std::size_t{shape_.blocks} * shape_.threads);
  Must(driver_.MemcpyDtoH(results.data(), state_, results.size() * sizeof results[0]), "cuMemcpyDtoH");
  const Map all = Steps(completed_ * shape_.iterations);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i] != all(static_cast<std::uint32_t>(i))) return false;
  }
  return true;
}

}  // namespace tessera::tenant
