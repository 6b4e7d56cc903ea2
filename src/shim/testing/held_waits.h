#pragma once

#include <atomic>
#include <thread>

#include "shim/testing/fake_cuda.h"

namespace tessera::shim {

// While it lives, a cuCtxSynchronize of the fake driver returns when the test lets it, as behind a long kernel. One at
// a time. Its end lets all waits return; no other one may begin then.
class HeldWaits {
 public:
  explicit HeldWaits(FakeCuda& cuda) {
    begun_ = returned_ = let_ = 0;
    answer_ = cuda::CUDA_SUCCESS;
    before_ = tessera_real_table[k_cuCtxSynchronize];
    cuda.Put(k_cuCtxSynchronize, &Synchronize);
  }
  ~HeldWaits() {
    Let(kAll);
    while (returned_ != begun_) std::this_thread::yield();
    tessera_real_table[k_cuCtxSynchronize] = before_;
  }
  HeldWaits(const HeldWaits&) = delete;

  // Returns when `count` waits have begun; the context of the last one.
  cuda::CUcontext Await(int count) const {
    for (int begun = begun_; begun < count; begun = begun_) begun_.wait(begun);
    return context_;
  }
  int Begun() const { return begun_; }
  // The first `count` waits return, with the answer.
  void Let(int count) {
    let_ = count;
    let_.notify_all();
  }
  void Answer(cuda::CUresult answer) { answer_ = answer; }

 private:
  static constexpr int kAll = 1 << 30;

  static cuda::CUresult Synchronize() {
    cuda::CUcontext context = nullptr;
    REAL_AS(cuCtxGetCurrent, cuda::CUcontext*)(&context);
    context_ = context;
    const int mine = ++begun_;
    begun_.notify_all();
    for (int let = let_; let < mine; let = let_) let_.wait(let);
    const cuda::CUresult answer = answer_;
    ++returned_;
    return answer;
  }

  static inline std::atomic<int> begun_, returned_, let_;
  static inline std::atomic<cuda::CUresult> answer_;
  static inline std::atomic<cuda::CUcontext> context_;  // of the last wait
  void* before_;
};

}  // namespace tessera::shim
