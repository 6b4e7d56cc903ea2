#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

struct PlanChoices {
  std::string workload;
  std::string gpu = "h200";  // a name, or a file
  std::size_t gpus = 0;      // --gpus; 0: as few as possible
  bool fewest = false;       // what 0 says already
  std::size_t gpus_per_node = 1;
  std::string place_by;  // file: an earlier record; empty: none
  std::string policy = "tessera";
  std::string report;          // file; empty: none
  std::string seconds = "10";  // of the search
  std::string length = "60s";  // simulated, of what is no record
  std::string burst = "100ms";
  double margin_pct = 0;
  std::uint64_t seed = 1;
  bool no_simulation = false;
};

// `tessera plan`: how many GPUs a workload needs, who lies on which, and what each gets there. Blocks for the time of
// the search and of the simulation. Exit status 1: a tenant was refused, or a goal is missed.
Result<int> Plan(const Common& common, const PlanChoices& choices);

struct GenerateChoices {
  std::string kind;
  std::uint64_t seed = 1;
  std::string length;
  std::uint32_t count = 0;
  std::string output = "-";
};

// `tessera plan --generate KIND`: writes an example of a workload.
Result<int> GenerateWorkload(const GenerateChoices& choices);

}  // namespace tessera::cli
