// Examples of workloads, made up with the statistics of published traces.
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::plan {

enum class GeneratedKind {
  kUse,       // "genai": metered use of many programs that are idle most of the time, as input/use_csv.h reads it
  kPods,      // "cluster": pods that ask for parts of GPUs, with openb's columns
  kNodes,     // "cluster-nodes": the nodes for these
  kRequests,  // "llm": requests to a language model, in bursts, as input/arrival_csv.h reads them
};

// EINVAL: none of these names.
Result<GeneratedKind> ParseGeneratedKind(std::string_view name);

struct GenerateOptions {
  // kUse: a day, at most a year; kRequests: an hour, at most a month; the others have none.
  Nanos length = 0;  // 0: the one that is said
  // kUse: programs at once, 114; kPods: pods, 8152; kNodes: nodes, 1213; kRequests: in an hour, 8819. At most a
  // million.
  std::uint32_t count = 0;  // 0: the one that is said
};

// Writes a CSV. The same arguments write the same bytes on every machine. docs/plan-input.md says where the statistics
// come from. ERANGE: an option is too large; EIO: `out` does not take it.
Result<void> Generate(GeneratedKind kind, std::uint64_t seed, const GenerateOptions& options, std::ostream& out);

}  // namespace tessera::plan
