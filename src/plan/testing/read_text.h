#pragma once

#include <memory>
#include <sstream>
#include <string>

#include "plan/input/csv_reader.h"
#include "plan/input/read_workload.h"

namespace tessera::plan {

inline Result<CsvReader> CsvOf(std::string text) {
  return CsvReader::From(std::make_unique<std::istringstream>(std::move(text)), "x.csv");
}

// What a file of this name with this text is read as.
inline Result<Workload> WorkloadOf(const std::string& name, std::string text) {
  return ReadWorkloadFrom(std::make_unique<std::istringstream>(std::move(text)), name, {});
}

// The error's text; empty: there is none.
template <typename T>
std::string ErrorOf(const Result<T>& result) {
  return result ? "" : result.error().Text();
}

}  // namespace tessera::plan
