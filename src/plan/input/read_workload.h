// A workload from a file, whatever its format.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/size.h"
#include "plan/input/arrival_csv.h"
#include "plan/workload/tenant.h"

namespace tessera::plan {

// What files do not say. Notes of the workload tell what of it was used.
struct ReadOptions {
  // Of requests in CSVs of arrivals. Assumptions, not measured: a model of about 8 billion parameters, whose server
  // generates for several requests at a time.
  RequestCost cost = {
      .service = 10 * kMillisecond, .per_context_token = 50 * kMicrosecond, .per_generated_token = kMillisecond};
  std::uint64_t memory = 20 * kGiB;  // of each of their clients
  Nanos interval = kSecond;          // of the samples that a trace of `tessera trace` is made into
};

// Reads `path`. What it is, is decided by the name: .toml is a mix (mix.h), .json a trace of `tessera trace`
// (trace_json.h), anything else a CSV, and that by its columns: use (use_csv.h) or arrivals (arrival_csv.h).
// docs/plan-input.md describes them. The title is the file's name unless it has one. Errors: as those files say;
// EISDIR, ENOENT and so on; EINVAL for columns that are not known, with those that are. Blocks while it reads; any
// thread.
Result<Workload> ReadWorkload(const std::string& path, const ReadOptions& options);

// The same of a text: `path` is its name, and decides how it is read.
Result<Workload> ReadWorkloadFrom(std::unique_ptr<std::istream> text, const std::string& path,
                                  const ReadOptions& options);

}  // namespace tessera::plan
