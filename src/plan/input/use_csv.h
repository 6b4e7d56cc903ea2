// Metered use of programs, as a CSV: what each used of its GPU's time and memory, sample by sample.
#pragma once

#include "base/result.h"
#include "plan/input/csv_reader.h"
#include "plan/workload/tenant.h"

namespace tessera::plan {

inline constexpr const char* kUseColumns = "second,pod,duty_pct,memory_mib";
inline constexpr const char* kOwnUseColumns = "second,vgpu,gpu,duty_pct,memory_mib";

// Whether these are the columns of such a file: kUseColumns, or with `vgpu` instead of `pod`; `gpu` and `group` may be
// there.
bool IsUse(const CsvReader& csv);

// A tenant with samples for each pod or vGPU, all rows that are left read. Rows are in the order of `second`, which may
// have any begin. The interval between two samples is the usual one (the median). More than three of them without a row
// of a tenant: it was not there, and used nothing; notes say how often. A row with an empty field is left out.
// EINVAL: time that goes back, two rows of a tenant at one time, no rows, and as CsvReader; ERANGE: a number outside
// its range. Keeps 16 bytes a row.
Result<Workload> ReadUse(CsvReader& csv);

}  // namespace tessera::plan
