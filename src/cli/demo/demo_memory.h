#pragma once

#include <array>
#include <string>

#include "base/result.h"
#include "cli/demo/demo_view.h"
#include "cli/launch/common.h"
#include "client/json.h"

namespace tessera::cli {

// The result of the demo's memory part: two programs that each want most of a GPU, first without Tessera, then with it.
struct MemoryAct {
  struct Program {
    std::string died_of;  // without Tessera; empty: it finished
    bool verified = false;
    std::uint64_t moved_out_bytes = 0, moved_in_bytes = 0;
    std::uint64_t moving_us = 0;
  };

  std::string skipped;  // why it was not played; empty: it was
  std::string device;
  std::uint64_t gpu_bytes = 0;
  std::uint64_t wanted_bytes = 0;  // by each program
  double seconds = 0;              // until both had finished under Tessera
  std::array<Program, 2> programs;

  bool Right() const { return !skipped.empty() || (programs[0].verified && programs[1].verified); }
};

// Runs it with a daemon of its own. A soft GPU is small, so that it takes seconds.
Result<MemoryAct> PlayMemory(Common common, DemoView& view);

// Bytes of host memory for two programs that want `wanted` bytes each of `gpu`, an element of GET /v1/gpus: what the
// GPU cannot hold of that, of their contexts and the mover's, and some more to move with.
std::uint64_t HostMemoryNeeded(const client::Json& gpu, std::uint64_t wanted);

client::Json JsonOf(const MemoryAct& act);
void PrintAct(const MemoryAct& act);

}  // namespace tessera::cli
