#pragma once

#include <cstdint>
#include <list>
#include <random>
#include <vector>

#include "driver.h"

namespace tessera::churn {

struct Tally {
  std::uint64_t rounds = 0;
  std::uint64_t checked = 0, wrong = 0;  // words
  std::uint64_t replays = 0, refused = 0;
  std::uint64_t most_bytes = 0;  // that were allocated at once
};

// Buffers of any size, some of whose words are written in every way that there is. What each must hold is computed on
// the host, too.
class Churn {
 public:
  Churn(std::uint64_t seed, std::uint64_t most_bytes) : random_(seed), most_bytes_(most_bytes) {}

  // One random thing.
  void Round();
  // All that is there.
  void VerifyAll();
  const Tally& Figures() const { return tally_; }

 private:
  // Words at multiples of `stride`.
  struct Buffer {
    cuda::CUdeviceptr address = 0;
    std::uint64_t bytes = 0, stride = 0;
    std::vector<std::uint64_t> words;
    const char* last = "made";  // what was done to it
  };
  // Step `from`, copy the beginning of it to `to`, step that: as captured once, and replayed whenever.
  struct Graph {
    cuda::CUgraphExec executable = nullptr;
    Buffer* from = nullptr;
    Buffer* to = nullptr;
    std::uint64_t factor = 0, term = 0;
  };

  std::uint64_t Number(std::uint64_t least, std::uint64_t most);
  Buffer* AnyBuffer();
  void Allocate();
  void Free();
  void Step();
  void Scatter();
  void Copy();
  void Capture();
  void Replay(const Graph& graph);
  void Verify(const Buffer& buffer);

  // As the GPU does it.
  static void StepOnHost(Buffer& buffer, std::uint64_t factor, std::uint64_t term);
  static std::uint64_t CommonWords(const Buffer& from, const Buffer& to);

  Gpu gpu_;
  std::mt19937_64 random_;
  const std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;
  std::list<Buffer> buffers_;
  std::list<Graph> graphs_;
  Tally tally_;
};

}  // namespace tessera::churn
