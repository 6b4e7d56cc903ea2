#pragma once

#include <map>
#include <string>

#include "base/result.h"

namespace tessera::server {

// Words that a vGPU's owner puts on it, such as a team or a pod: all series of the vGPU's metrics carry them.
using Labels = std::map<std::string, std::string>;

// Checks that metrics can carry them. EINVAL for more than 8 labels; for a name that is not [a-z_][a-z0-9_]{0,62},
// begins with "__", or is that of a label which the metrics, or Prometheus, have already; and for a value of more than
// 253 bytes (the longest name of a pod), or one that is no UTF-8 or has control characters. Any thread.
Result<void> CheckLabels(const Labels& labels);

// "pod=a, team=b", for people; empty without labels.
std::string FormatLabels(const Labels& labels);

}  // namespace tessera::server
