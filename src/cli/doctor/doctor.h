#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

enum class Verdict { kOk, kWarn, kFail };

// The result of one check.
struct Finding {
  Verdict verdict;
  std::string subject;  // "driver"
  std::string detail;   // what was found
  std::string advice;   // what to do about it; empty for kOk
};

// `tessera doctor`: 0 if programs can run on a GPU here, or with --soft on the soft GPU.
Result<int> Doctor(const Common& common);

// Whether programs can run: no check failed.
bool CanRun(const std::vector<Finding>& findings);

}  // namespace tessera::cli
