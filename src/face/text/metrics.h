#pragma once

#include <string>

#include "server/daemon/report.h"

namespace tessera::face {

enum class MetricsFormat {
  kPrometheus,   // text format 0.0.4
  kOpenMetrics,  // 1.0.0, https://prometheus.io/docs/specs/om/open_metrics_spec/
};

// The Content-Type of a format.
const char* ContentType(MetricsFormat format);

// The format for a scraper that sends this Accept header: OpenMetrics if the header names it.
MetricsFormat ChooseFormat(const std::string& accept);

// All metrics. Labels are bounded by what there is: GPUs, vGPUs with at most 8 labels of their own, processes that use
// a GPU.
std::string WriteMetrics(const server::WholeReport& report, MetricsFormat format);

// docs/reference/metrics.md: every metric with its type, labels and meaning, from the same table.
std::string MetricsReference();

}  // namespace tessera::face
