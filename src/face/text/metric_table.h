#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "face/text/metrics_text.h"
#include "server/daemon/report.h"

namespace tessera::face {

// A metric family, and how to read its samples from one report. nullopt, or a null histogram: the report has none.
template <typename Report>
struct Metric {
  MetricFamily family;
  std::optional<double> (*value)(const Report&) = nullptr;
  const server::Histogram* (*histogram)(const Report&) = nullptr;
  // One sample for each of these values of the label, by its position.
  const char* label = nullptr;
  std::span<const char* const> values = {};
  std::optional<double> (*each)(const Report&, std::size_t) = nullptr;
  const server::Histogram* (*each_histogram)(const Report&, std::size_t) = nullptr;
};

// The tables: every metric that there is, in the order in which they are written. Metrics of the whole daemon are read
// from any GPU: one channel server serves all, and each GPU's report has the same figures.
std::span<const Metric<server::GpuReport>> DaemonMetrics();
std::span<const Metric<server::GpuReport>> GpuMetrics();
std::span<const Metric<server::VGpuReport>> VGpuMetrics();
std::span<const Metric<server::SpaceReport>> SpaceMetrics();
std::span<const Metric<server::ProcessReport>> ProcessMetrics();

// Reports have microseconds and percent, metrics seconds and ratios.
inline constexpr double kWholePct = 100;
inline double Seconds(std::int64_t us) { return static_cast<double>(us) / 1e6; }
inline double Seconds(std::uint64_t us) { return static_cast<double>(us) / 1e6; }
inline double Of(std::uint64_t number) { return static_cast<double>(number); }
// 1 if the state is that one.
inline double Is(const char* state, const char* one) { return std::strcmp(state, one) == 0 ? 1 : 0; }

inline constexpr std::array kDirections = {"out", "in"};

}  // namespace tessera::face
