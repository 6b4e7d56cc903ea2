// The order between streams that a program does not ask for: that of the default stream and blocking streams.
#include <chrono>
#include <new>
#include <thread>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

// Words in host memory, which the GPU reaches.
struct WordsOfGpu {
  std::uint32_t gate;    // what comes first waits for it
  std::uint32_t source;  // and then sets this one
  std::uint32_t target;  // where what comes second copies it
};

CUdeviceptr At(volatile std::uint32_t& word) { return reinterpret_cast<CUdeviceptr>(&word); }

// One case of `order`. Its calls are made until one fails.
class Case {
 public:
  Reply Run(const std::string& first, const std::string& second) {
    void* memory = nullptr;
    if (!Step(Call("cuMemHostAlloc", &memory, sizeof(WordsOfGpu), unsigned{CU_MEMHOSTALLOC_DEVICEMAP})) ||
        !Step(Call("cuStreamCreate", &blocking_, unsigned{CU_STREAM_DEFAULT})) ||
        !Step(Call("cuStreamCreate", &other_, unsigned{CU_STREAM_NON_BLOCKING})) ||
        !Step(Call("cuEventCreate", &event_, unsigned{CU_EVENT_DISABLE_TIMING})) ||
        !Step(Call("cuStreamGetFlags", blocking_, &flags_)))
      return result_;
    words_ = new (memory) WordsOfGpu{};
    if (second == "graph" && !Capture()) return result_;
    if (!First(first)) return result_;
    std::thread lets_go([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // for what does not wait
      words_->gate = 1;
    });
    Second(second);
    lets_go.join();
    Step(Call("cuCtxSynchronize"));
    return Reply(result_).Add("value", words_->target).Add("flags", flags_);
  }

 private:
  bool Step(CUresult done) { return (result_ = result_ == CUDA_SUCCESS ? done : result_) == CUDA_SUCCESS; }

  bool Held(CUstream stream) {
    return Step(Call("cuStreamWaitValue32_v2", stream, At(words_->gate), std::uint32_t{1}, 0u)) &&
           Step(Call("cuStreamWriteValue32_v2", stream, At(words_->source), std::uint32_t{1}, 0u));
  }
  bool Copies(CUstream stream) {
    return Step(Call("cuMemcpyDtoDAsync_v2", At(words_->target), At(words_->source), sizeof words_->source, stream));
  }
  bool RecordOn(CUstream stream) { return Step(Call("cuEventRecord", event_, stream)); }
  bool WaitOn(CUstream stream) { return Step(Call("cuStreamWaitEvent", stream, event_, 0u)); }

  bool Capture() {
    CUgraph graph = nullptr;
    return Step(Call("cuStreamBeginCapture_v2", blocking_, CU_STREAM_CAPTURE_MODE_GLOBAL)) && Copies(blocking_) &&
           RecordOn(blocking_) && Step(Call("cuStreamEndCapture", blocking_, &graph)) &&
           Step(Call("cuGraphInstantiateWithFlags", &exec_, graph, 0ull));
  }

  bool First(const std::string& first) {
    if (first == "default") return Held(nullptr);
    if (first == "wait") return Held(other_) && RecordOn(other_) && WaitOn(nullptr);
    if (first == "destroyed") return Held(blocking_) && Step(Call("cuStreamDestroy_v2", blocking_));
    return Held(blocking_);
  }

  void Second(const std::string& second) {
    std::uint32_t word = 0;
    if (second == "default") {
      Copies(nullptr);
    } else if (second == "blocking") {
      Copies(blocking_);
    } else if (second == "copy") {
      Step(Call("cuMemcpyDtoH_v2", static_cast<void*>(&word), At(words_->source), sizeof word));
      words_->target = word;
    } else if (second == "event" && RecordOn(nullptr) && WaitOn(other_)) {
      Copies(other_);
    } else if (second == "sync" || second == "sync_blocking") {
      Step(Call("cuStreamSynchronize", second == "sync" ? nullptr : blocking_));
      words_->target = words_->source;
    } else if (second == "query") {
      while (Call("cuStreamQuery", CUstream{}) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
      words_->target = words_->source;
    } else if (second == "memory") {
      CUdeviceptr block = 0;
      if (Step(Call("cuMemAllocAsync", &block, std::size_t{4096}, CUstream{})) && RecordOn(nullptr) &&
          Step(Call("cuMemFreeAsync", block, CUstream{})) && WaitOn(other_))
        Copies(other_);
    } else if (second == "graph") {
      Step(Call("cuGraphLaunch", exec_, blocking_));
    }
  }

  CUresult result_ = CUDA_SUCCESS;
  CUstream blocking_ = nullptr, other_ = nullptr;
  CUevent event_ = nullptr;
  CUgraphExec exec_ = nullptr;
  unsigned flags_ = 0;
  volatile WordsOfGpu* words_ = nullptr;
};

// order FIRST SECOND: whether what comes second sees what came first (value 1), and the flags of the blocking stream.
// FIRST is work on a stream: default, blocking, destroyed (the same, which is destroyed then), wait (of the default
// stream for another one). SECOND: default, blocking, copy (synchronous), event (of the default stream), sync, query
// (of it), sync_blocking, memory (allocated and freed there), graph (captured on the blocking stream before).
Reply Order(const Words& words) { return Case().Run(words.at(0), words.at(1)); }

// blocking COUNT, end_blocking: makes blocking streams, and destroys them.
std::vector<CUstream> made_streams;
Reply Blocking(const Words& words) {
  CUresult result = CUDA_SUCCESS;
  for (auto left = NumberAt(words, 0); left > 0 && result == CUDA_SUCCESS; --left) {
    made_streams.push_back(nullptr);
    result = Call("cuStreamCreateWithPriority", &made_streams.back(), unsigned{CU_STREAM_DEFAULT}, 0);
  }
  return result;
}
Reply EndBlocking(const Words&) {
  CUresult result = CUDA_SUCCESS;
  for (const CUstream stream : made_streams)
    if (result == CUDA_SUCCESS) result = Call("cuStreamDestroy_v2", stream);
  made_streams.clear();
  return result;
}

}  // namespace

void AddOrderCommands(Commands& commands) {
  commands["order"] = Order;
  commands["blocking"] = Blocking;
  commands["end_blocking"] = EndBlocking;
}

}  // namespace tessera::shell
