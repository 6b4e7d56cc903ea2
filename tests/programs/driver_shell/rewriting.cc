// A thread that writes to memory all the time, while the shell answers other commands: work of one GPU on the memory of
// another.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

// Writes one word after the other to all of a block, and reads each back, in the context that made the object.
class Rewriting {
 public:
  // `copies`: from a block of the context's own, for which it needs no access to the block.
  Rewriting(CUdeviceptr block, std::size_t bytes, bool copies) : block_(block), bytes_(bytes), copies_(copies) {
    Call("cuCtxGetCurrent", &context_);
    thread_ = std::thread([this] { Run(); });
  }
  ~Rewriting() { End(); }
  void End() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Reply State() const { return Reply(result_).Add("rounds", rounds_).Add("wrong", wrong_); }

 private:
  void Run() {
    CUdeviceptr own = 0;
    CUresult result = Call("cuCtxSetCurrent", context_);
    if (result == CUDA_SUCCESS) result = Call("cuMemAlloc_v2", &own, bytes_);
    for (std::uint32_t word = 1; result == CUDA_SUCCESS && !ended_; ++word) {
      result = Round(own, word);
      if (result == CUDA_SUCCESS) ++rounds_;
    }
    if (own != 0) Call("cuMemFree_v2", own);
    result_ = result;
  }

  CUresult Round(CUdeviceptr own, std::uint32_t word) {
    CUresult result = Call("cuMemsetD32_v2", copies_ ? own : block_, word, bytes_ / sizeof word);
    if (result == CUDA_SUCCESS && copies_) result = Call("cuMemcpyDtoD_v2", block_, own, bytes_);
    if (result == CUDA_SUCCESS) result = Call("cuMemsetD32_v2", own, 0u, bytes_ / sizeof word);
    if (result == CUDA_SUCCESS) result = Call("cuMemcpyDtoD_v2", own, block_, bytes_);
    std::vector<std::uint32_t> found(bytes_ / sizeof word);
    if (result == CUDA_SUCCESS) result = Call("cuMemcpyDtoH_v2", static_cast<void*>(found.data()), own, bytes_);
    if (result == CUDA_SUCCESS) wrong_ += std::ranges::count_if(found, [=](auto each) { return each != word; });
    return result;
  }

  const CUdeviceptr block_;
  const std::size_t bytes_;
  const bool copies_;
  CUcontext context_ = nullptr;
  std::atomic<bool> ended_{false};
  std::atomic<CUresult> result_{CUDA_SUCCESS};
  std::atomic<long long> rounds_{0}, wrong_{0};
  std::thread thread_;
};

std::unique_ptr<Rewriting> rewriting;

}  // namespace

void AddRewritingCommands(Commands& commands) {
  // rewrite ADDRESS BYTES write|copy: begins, in the current context. rewrites: how often it has done it, and how many
  // words were not as it had written them. rewritten: ends it.
  commands["rewrite"] = [](const Words& words) -> Reply {
    rewriting = std::make_unique<Rewriting>(NumberAt(words, 0), NumberAt(words, 1), words.at(2) == "copy");
    return CUDA_SUCCESS;
  };
  commands["rewrites"] = [](const Words&) { return rewriting->State(); };
  commands["rewritten"] = [](const Words&) {
    rewriting->End();
    return rewriting->State();
  };
}

}  // namespace tessera::shell
