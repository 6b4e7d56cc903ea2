#pragma once

#include <string>
#include <utility>
#include <vector>

#include "face/text/metrics.h"
#include "server/record/histogram.h"

namespace tessera::face {

enum class MetricType { kGauge, kCounter, kHistogram, kInfo };

// A metric's name without the suffixes that its type adds (_total, _bucket, _info), and its meaning.
struct MetricFamily {
  const char* name;
  MetricType type;
  const char* unit;    // "bytes", "seconds", "ratio", or "" for numbers of things; the last part of the name
  const char* labels;  // for the reference
  const char* help;
};

using MetricLabels = std::vector<std::pair<const char*, std::string>>;

// Writes families one after the other, each with all of its samples.
class MetricsText {
 public:
  explicit MetricsText(MetricsFormat format) : format_(format) {}

  void Begin(const MetricFamily& family);
  // Of the family that was begun last.
  void Sample(const MetricLabels& labels, double value);
  void Sample(const MetricLabels& labels, const server::Histogram& histogram);
  std::string End() &&;

 private:
  void Line(const char* suffix, const MetricLabels& labels, const std::pair<const char*, std::string>& more,
            double value);

  const MetricsFormat format_;
  const MetricFamily* family_ = nullptr;
  std::string text_;
};

}  // namespace tessera::face
