// The work of a simulated program: phases, each made of bursts of GPU work.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace tessera::plan {

inline constexpr std::uint32_t kEndless = UINT32_MAX;

// A length of time that is drawn anew each time it is needed.
struct Span {
  Nanos least = 0;
  Nanos most = 0;
  bool exponential = false;  // mean `most`, no upper bound; else uniform in [least, most]

  static Span Exactly(Nanos length) { return {length, length, false}; }
  static Span Between(Nanos least, Nanos most) { return {least, most, false}; }
  static Span About(Nanos mean) { return {0, mean, true}; }
};

// A phase allocates or frees memory when it begins, and then works in bursts: a request of a server, a batch of a
// training job. Each burst uses all memory of the phase.
struct Phase {
  std::uint64_t memory = 0;         // bytes that the program has allocated in this phase
  Nanos burst = kNever;             // GPU time of a burst; kNever: it never ends; 0: no work, only the gap
  std::uint32_t bursts = kEndless;  // the phase ends with the gap after the last one
  Span gap;                         // from the end of a burst to the arrival of the next
  bool open = false;                // gaps are between arrivals: bursts arrive while others run, and queue
  Nanos step = 0;                   // the program looks at its results after so much GPU time; 0: at the end only
  Span pause;                       // between two steps, in which it gives the GPU no work
  // When the phase begins, since the program's begin, and at most once. Bursts of earlier phases that have not ended go
  // on and are not lost. kNever: when the phase before it has ended.
  Nanos begins = kNever;
};

// memory.request, memory.limit and memory.swap.max of a program's vGPU; docs/memory.md tells what they mean.
struct MemoryTerms {
  std::uint64_t request = 0;
  std::optional<std::uint64_t> limit;
  std::optional<std::uint64_t> swap;
};

struct Program {
  std::vector<Phase> phases = {Phase{}};  // at least one; the default keeps the GPU busy without end
  std::uint32_t repeats = kEndless;       // of all phases; then its memory is freed and it does nothing more
  Span start;                             // until its first phase begins
  // Where a gate decides who runs (tokens): GPU time that is queued on the GPU when the gate closes, at most, and how
  // long the program looks at its results after that was done.
  Nanos in_flight = 0;
  Nanos sync = 0;
  MemoryTerms terms;
  bool tells = false;  // it tells the daemon how long each burst took, from its arrival on
};

}  // namespace tessera::plan
