// Times at which requests arrived, as a CSV.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "plan/input/csv_reader.h"
#include "plan/workload/tenant.h"

namespace tessera::plan {

// GPU time of a request, alone on all SMs. All in nanoseconds.
struct RequestCost {
  Nanos service = 0;              // of each, where the file counts no tokens or the two others are 0
  Nanos per_context_token = 0;    // of its prompt
  Nanos per_generated_token = 0;  // of its answer
};

// What of the file to read, and how.
struct ArrivalChoice {
  std::string column;  // that has the times, named ..._s, ..._ms or ..._us; empty: it is one of the known formats
  bool gaps = false;   // `column` has the times between two arrivals, not since the begin
  std::string client;  // rows of this one only; empty: the file must not name clients
  RequestCost cost;
};

inline constexpr const char* kTokenColumns = "TIMESTAMP,ContextTokens,GeneratedTokens";
inline constexpr const char* kClientColumns = "client,at_ms";
inline constexpr const char* kGapColumn = "gap_s";

// Whether these are the columns of one of the known formats: kTokenColumns, kClientColumns or kGapColumn.
bool IsArrivals(const CsvReader& csv);

// Arrivals at `times`, with `services` if requests differ. Times of a format with dates begin with its first row's.
// EINVAL: times that go back, a client without rows, no rows, columns that are not known, and as CsvReader; ERANGE: a
// number outside its range, or a request of more than an hour.
Result<Arrivals> ReadArrivals(CsvReader& csv, const ArrivalChoice& choice);

// A tenant for each client, or one; each with this memory and its part of the costs. Errors as ReadArrivals.
Result<Workload> ReadArrivalTenants(CsvReader& csv, const RequestCost& cost, std::uint64_t memory);

// What a burst of these arrivals takes on average; `otherwise` if all take the same.
Nanos MeanService(const Arrivals& arrivals, Nanos otherwise);

}  // namespace tessera::plan
