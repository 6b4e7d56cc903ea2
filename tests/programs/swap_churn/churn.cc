#include "churn.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/clock.h"

namespace tessera::churn {

using namespace cuda;

namespace {

constexpr std::uint64_t kLargeStride = 64 << 10;
constexpr std::uint64_t kSmallStride = 512;
constexpr std::uint64_t kMostCopied = 4 << 20;
constexpr std::uint64_t kLargest = 48 << 20;
constexpr std::size_t kMostGraphs = 4;

}  // namespace

std::uint64_t Churn::Number(std::uint64_t least, std::uint64_t most) { return least + random_() % (most - least + 1); }

Churn::Buffer* Churn::AnyBuffer() {
  if (buffers_.empty()) return nullptr;
  return &*std::next(buffers_.begin(), static_cast<std::ptrdiff_t>(Number(0, buffers_.size() - 1)));
}

void Churn::Round() {
  ++tally_.rounds;
  const std::uint64_t choice = Number(0, 99);
  if (buffers_.empty() || choice < 12) return Allocate();
  if (choice < 17) return Free();
  if (choice < 45) return Step();
  if (choice < 57) return Scatter();
  if (choice < 70) return Copy();
  if (choice < 74) return Capture();
  if (choice < 86 && !graphs_.empty())
    return Replay(*std::next(graphs_.begin(), static_cast<std::ptrdiff_t>(Number(0, graphs_.size() - 1))));
  Verify(*AnyBuffer());
}

void Churn::Allocate() {
  Buffer buffer;
  const bool small = Number(0, 5) == 0;
  buffer.bytes = small ? Number(1, 100) * kSmallStride : Number(1 << 20, kLargest);
  buffer.stride = small ? kSmallStride : kLargeStride;
  if (bytes_ + buffer.bytes > most_bytes_) return buffers_.empty() ? void() : Free();
  const CUresult result = Call("cuMemAlloc_v2", &buffer.address, std::size_t{buffer.bytes});
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    ++tally_.refused;
    return;
  }
  Check(result, "cuMemAlloc");
  bytes_ += buffer.bytes;
  tally_.most_bytes = std::max(tally_.most_bytes, bytes_);
  buffer.words.resize(buffer.bytes / buffer.stride);
  buffers_.push_back(std::move(buffer));
  // New memory has any contents: it is set at once to what the host expects.
  Buffer& made = buffers_.back();
  const std::uint64_t term = random_();
  gpu_.Step(made.address, made.words.size(), made.stride, 0, term);
  StepOnHost(made, 0, term);
}

// Also while work that uses it is under way: the driver waits for that.
void Churn::Free() {
  const auto buffer = std::next(buffers_.begin(), static_cast<std::ptrdiff_t>(Number(0, buffers_.size() - 1)));
  if (Number(0, 1) == 0) Verify(*buffer);
  for (auto graph = graphs_.begin(); graph != graphs_.end();) {
    if (graph->from != &*buffer && graph->to != &*buffer) {
      ++graph;
      continue;
    }
    gpu_.Synchronize();
    Must("cuGraphExecDestroy", graph->executable);
    graph = graphs_.erase(graph);
  }
  Must("cuMemFree_v2", buffer->address);
  bytes_ -= buffer->bytes;
  buffers_.erase(buffer);
}

void Churn::Step() {
  Buffer& buffer = *AnyBuffer();
  const std::uint64_t factor = random_(), term = random_();
  gpu_.Step(buffer.address, buffer.words.size(), buffer.stride, factor, term);
  StepOnHost(buffer, factor, term);
  buffer.last = "stepped";
}

void Churn::Scatter() {
  Buffer& buffer = *AnyBuffer();
  const std::uint64_t first = Number(0, buffer.words.size() - 1);
  const std::uint64_t count = Number(1, buffer.words.size() - first);
  const std::span words = std::span(buffer.words).subspan(first, count);
  for (std::uint64_t& word : words) word = random_();
  gpu_.Scatter(buffer.address + first * buffer.stride, buffer.stride, words);
  buffer.last = "scattered to";
}

std::uint64_t Churn::CommonWords(const Buffer& from, const Buffer& to) {
  return std::min<std::uint64_t>({from.words.size(), to.words.size(), kMostCopied / from.stride});
}

void Churn::Copy() {
  const Buffer& from = *AnyBuffer();
  Buffer& to = *AnyBuffer();
  if (&from == &to || from.stride != to.stride) return;
  const std::uint64_t words = CommonWords(from, to);
  const std::uint64_t first = Number(0, to.words.size() - words);
  gpu_.Copy(to.address + first * to.stride, from.address, words * from.stride);
  std::copy_n(from.words.begin(), words, to.words.begin() + static_cast<std::ptrdiff_t>(first));
  to.last = "copied to";
}

void Churn::Capture() {
  Buffer& from = *AnyBuffer();
  Buffer& to = *AnyBuffer();
  if (&from == &to || from.stride != to.stride || graphs_.size() >= kMostGraphs) return;
  Graph graph{.executable = nullptr, .from = &from, .to = &to, .factor = random_(), .term = random_()};
  CUgraph captured = nullptr;
  Must("cuStreamBeginCapture_v2", gpu_.Stream(), CU_STREAM_CAPTURE_MODE_RELAXED);
  gpu_.Step(from.address, from.words.size(), from.stride, graph.factor, graph.term);
  gpu_.Copy(to.address, from.address, CommonWords(from, to) * from.stride);
  gpu_.Step(to.address, to.words.size(), to.stride, graph.factor, graph.term);
  Must("cuStreamEndCapture", gpu_.Stream(), &captured);
  Must("cuGraphInstantiateWithFlags", &graph.executable, captured, 0ull);
  Must("cuGraphDestroy", captured);
  graphs_.push_back(graph);
  Replay(graph);
}

void Churn::Replay(const Graph& graph) {
  Must("cuGraphLaunch", graph.executable, gpu_.Stream());
  StepOnHost(*graph.from, graph.factor, graph.term);
  std::copy_n(graph.from->words.begin(), CommonWords(*graph.from, *graph.to), graph.to->words.begin());
  StepOnHost(*graph.to, graph.factor, graph.term);
  graph.from->last = graph.to->last = "in a graph";
  ++tally_.replays;
}

void Churn::StepOnHost(Buffer& buffer, std::uint64_t factor, std::uint64_t term) {
  for (std::uint64_t i = 0; i < buffer.words.size(); ++i) buffer.words[i] = buffer.words[i] * factor + term + i;
}

void Churn::Verify(const Buffer& buffer) {
  std::vector<std::uint64_t> found(buffer.words.size());
  gpu_.Gather(found, buffer.address, buffer.stride);
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != buffer.words[i]) wrong.push_back(i);
  }
  tally_.wrong += wrong.size();
  tally_.checked += found.size();
  if (wrong.empty()) return;
  std::fprintf(
      stderr,
      "swap_churn: %.6f: round %llu: %zu of %zu words at %#llx are wrong, %zu to %zu of %llu bytes each, last %s\n",
      static_cast<double>(MonotonicNow()) / kSecond, static_cast<unsigned long long>(tally_.rounds), wrong.size(),
      found.size(), static_cast<unsigned long long>(buffer.address), wrong.front(), wrong.back(),
      static_cast<unsigned long long>(buffer.stride), buffer.last);
}

void Churn::VerifyAll() {
  for (const Buffer& buffer : buffers_) Verify(buffer);
}

}  // namespace tessera::churn
