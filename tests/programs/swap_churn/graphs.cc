#include "graphs.h"

#include <algorithm>

namespace tessera::churn {

using namespace cuda;

namespace {

constexpr std::size_t kMostGraphs = 4;
constexpr std::uint64_t kMostCopied = 4 << 20;

}  // namespace

std::uint64_t CommonWords(const Buffer& from, const Buffer& to) {
  if (&from == &to || from.stride != to.stride) return 0;
  return std::min<std::uint64_t>({from.words.size(), to.words.size(), kMostCopied / from.stride});
}

CUresult Graphs::CaptureInto(CUgraph& captured, const Graph& graph) {
  const Buffer &from = *graph.from, &to = *graph.to;
  const std::uint64_t words = CommonWords(from, to), bytes = words * from.stride;
  CUdeviceptr between = 0;
  CUresult result = CUDA_SUCCESS;
  Must("cuStreamBeginCapture_v2", gpu_.Stream(), CU_STREAM_CAPTURE_MODE_RELAXED);
  if (graph.with_memory) {
    result = Call("cuMemAllocAsync", &between, std::size_t{bytes}, gpu_.Stream());
    if (result == CUDA_SUCCESS) {
      gpu_.Copy(between, from.address, bytes);
      gpu_.Step(between, words, from.stride, graph.factor, graph.term);
      gpu_.Copy(to.address, between, bytes);
      Must("cuMemFreeAsync", between, gpu_.Stream());
    }
  } else {
    gpu_.Step(from.address, from.words.size(), from.stride, graph.factor, graph.term);
    gpu_.Copy(to.address, from.address, bytes);
    gpu_.Step(to.address, to.words.size(), to.stride, graph.factor, graph.term);
  }
  Must("cuStreamEndCapture", gpu_.Stream(), &captured);
  return result;
}

CUresult Graphs::Capture(Buffer& from, Buffer& to, bool with_memory) {
  if (CommonWords(from, to) == 0 || graphs_.size() >= kMostGraphs) return CUDA_SUCCESS;
  Graph graph{.from = &from, .to = &to, .factor = dice_.Word(), .term = dice_.Word(), .with_memory = with_memory};
  CUgraph captured = nullptr;
  CUresult result = CaptureInto(captured, graph);
  if (result == CUDA_SUCCESS) result = Call("cuGraphInstantiateWithFlags", &graph.executable, captured, 0ull);
  Must("cuGraphDestroy", captured);
  if (result != CUDA_SUCCESS) return result;
  graphs_.push_back(graph);
  return Replay(graphs_.back());
}

CUresult Graphs::Replay(const Graph& graph) {
  const CUresult result = Call("cuGraphLaunch", graph.executable, gpu_.Stream());
  if (result != CUDA_SUCCESS) return result;
  Buffer &from = *graph.from, &to = *graph.to;
  const auto words = static_cast<std::ptrdiff_t>(CommonWords(from, to));
  if (!graph.with_memory) StepOnHost(from.words, graph.factor, graph.term);
  std::copy_n(from.words.begin(), words, to.words.begin());
  StepOnHost(graph.with_memory ? std::span(to.words).first(words) : std::span(to.words), graph.factor, graph.term);
  from.last = to.last = graph.with_memory ? "in a graph with memory" : "in a graph";
  ++replays_;
  with_memory_ += graph.with_memory;
  return CUDA_SUCCESS;
}

void Graphs::Drop(const Buffer& buffer) {
  for (auto graph = graphs_.begin(); graph != graphs_.end();) {
    if (graph->from != &buffer && graph->to != &buffer) {
      ++graph;
      continue;
    }
    gpu_.Synchronize();
    Must("cuGraphExecDestroy", graph->executable);
    graph = graphs_.erase(graph);
  }
}

}  // namespace tessera::churn
