#pragma once

#include <list>

#include "buffer.h"
#include "dice.h"

namespace tessera::churn {

// Graphs that were captured once and are replayed whenever: they step one buffer, copy the beginning of it to another
// one and step that. Some do it in memory that they allocate and free themselves; then the first buffer stays as it is.
class Graphs {
 public:
  Graphs(const Gpu& gpu, Dice& dice) : gpu_(gpu), dice_(dice) {}

  // Captures one, and replays it. Nothing happens if there are enough, or the buffers cannot be copied.
  cuda::CUresult Capture(Buffer& from, Buffer& to, bool with_memory);
  // Any of them, of which there must be one.
  cuda::CUresult Replay() { return Replay(*dice_.Any(graphs_)); }
  // Those that use a buffer end.
  void Drop(const Buffer& buffer);

  bool Empty() const { return graphs_.empty(); }
  std::uint64_t Replays() const { return replays_; }
  std::uint64_t ReplaysWithMemory() const { return with_memory_; }

 private:
  struct Graph {
    cuda::CUgraphExec executable = nullptr;
    Buffer* from = nullptr;
    Buffer* to = nullptr;
    std::uint64_t factor = 0, term = 0;
    bool with_memory = false;
  };

  cuda::CUresult CaptureInto(cuda::CUgraph& captured, const Graph& graph);
  cuda::CUresult Replay(const Graph& graph);

  const Gpu& gpu_;
  Dice& dice_;
  std::list<Graph> graphs_;
  std::uint64_t replays_ = 0, with_memory_ = 0;
};

// How many words of one buffer can be copied to another.
std::uint64_t CommonWords(const Buffer& from, const Buffer& to);

}  // namespace tessera::churn
