#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "buffer.h"
#include "dice.h"
#include "graphs.h"
#include "peer.h"
#include "segments.h"
#include "sources.h"

namespace tessera::churn {

// What is used beside cuMemAlloc and graphs without memory.
struct Kinds {
  bool pools = false, segments = false, graph_memory = false, peer = false;
};

struct Tally {
  std::uint64_t rounds = 0;
  std::uint64_t checked = 0, wrong = 0;  // words
  std::uint64_t refused = 0;             // calls, by CUDA_ERROR_OUT_OF_MEMORY
  std::uint64_t most_bytes = 0;          // that were allocated at once
  std::uint64_t reshaped = 0, shared = 0;
};

// Buffers of any size and kind, some of whose words are written in every way that there is. What each must hold is
// computed on the host, too.
class Churn {
 public:
  Churn(std::uint64_t seed, std::uint64_t most_bytes, Kinds kinds);

  // One random thing.
  void Round();
  // All that is there.
  void VerifyAll();
  const Tally& Figures() const { return tally_; }
  const Graphs& Replayed() const { return graphs_; }

 private:
  Buffer& Any() { return *dice_.Any(buffers_); }
  // Whether the memory was given; ends the program at any other error than that there is none.
  bool Given(cuda::CUresult result, const char* what);
  Source& AnySource();
  std::uint64_t BytesOf(const Source& source) const;
  void Allocate();
  void Free(std::list<Buffer>::iterator buffer);
  // One of what the kinds add.
  void Special();
  void Reshape(Buffer& buffer);
  void WorkInPeer(Buffer& buffer);
  void Step();
  void Scatter();
  void Copy();
  // Sets words to known ones, whatever is there.
  void Plant(Buffer& buffer, std::uint64_t first, std::uint64_t count);
  void Verify(const Buffer& buffer);

  std::optional<Peer> peer_;  // begins before the driver does
  Gpu gpu_;
  Dice dice_;
  const std::uint64_t most_bytes_;
  const Kinds kinds_;
  std::uint64_t bytes_ = 0;
  Heap heap_{gpu_, dice_};
  Pools pools_{gpu_, dice_};
  GraphMemory graph_memory_{gpu_};
  Segments segments_{gpu_, dice_};
  Graphs graphs_{gpu_, dice_};
  std::list<Buffer> buffers_;
  Tally tally_;
};

}  // namespace tessera::churn
