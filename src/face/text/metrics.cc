#include "face/text/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "face/text/metric_table.h"
#include "face/text/metrics_text.h"

namespace tessera::face {
namespace {

using server::GpuReport;
using server::Histogram;
using server::ProcessReport;
using server::SpaceReport;
using server::VGpuReport;
using enum MetricType;

constexpr MetricFamily kBuild = {"tessera_build", kInfo, "", "version", "Version of the daemon."};
constexpr MetricFamily kGpuInfo = {"tessera_gpu", kInfo, "", "gpu, uuid, name", "GPUs that the daemon serves."};
constexpr MetricFamily kUnmanaged = {"tessera_gpu_unmanaged_processes", kGauge, "", "gpu",
                                     "Processes on the GPU that are in no vGPU."};
MetricLabels LabelsOf(const GpuReport& gpu) { return {{"gpu", std::to_string(gpu.index)}}; }
// The keys of its own labels are the report's.
MetricLabels LabelsOf(const VGpuReport& vgpu) {
  MetricLabels labels = {{"vgpu", vgpu.name}, {"gpu", std::to_string(vgpu.gpu)}};
  for (const auto& [key, value] : vgpu.labels) labels.emplace_back(key.c_str(), value);
  return labels;
}
MetricLabels LabelsOf(const SpaceReport& space) { return {{"space", space.name}, {"gpu", std::to_string(space.gpu)}}; }
MetricLabels LabelsOf(const ProcessReport& process) {
  return {
      {"pid", std::to_string(process.pid)}, {"vgpu", process.vgpu.value_or("")}, {"gpu", std::to_string(process.gpu)}};
}

template <typename Report>
void WriteSamples(MetricsText& text, const Metric<Report>& metric, const Report& report, const MetricLabels& labels) {
  if (metric.value) {
    if (const auto value = metric.value(report)) text.Sample(labels, *value);
  } else if (metric.histogram) {
    if (const Histogram* histogram = metric.histogram(report)) text.Sample(labels, *histogram);
  }
  for (std::size_t i = 0; i < metric.values.size(); ++i) {
    MetricLabels all = labels;
    all.emplace_back(metric.label, metric.values[i]);
    if (metric.each_histogram) {
      if (const Histogram* histogram = metric.each_histogram(report, i)) text.Sample(all, *histogram);
    } else if (const auto value = metric.each(report, i)) {
      text.Sample(all, *value);
    }
  }
}

template <typename Report>
void WriteAll(MetricsText& text, std::span<const Metric<Report>> metrics, const std::vector<Report>& reports) {
  for (const Metric<Report>& metric : metrics) {
    text.Begin(metric.family);
    for (const Report& report : reports) WriteSamples(text, metric, report, LabelsOf(report));
  }
}

// Processes in vGPUs. The others are only counted (tessera_gpu_unmanaged_processes).
std::vector<ProcessReport> Managed(const std::vector<ProcessReport>& processes) {
  std::vector<ProcessReport> managed;
  std::ranges::copy_if(processes, std::back_inserter(managed),
                       [](const ProcessReport& process) { return process.vgpu.has_value(); });
  return managed;
}

}  // namespace

const char* ContentType(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

MetricsFormat ChooseFormat(const std::string& accept) {
  return accept.find("application/openmetrics-text") != std::string::npos ? MetricsFormat::kOpenMetrics
                                                                          : MetricsFormat::kPrometheus;
}

std::string WriteMetrics(const server::WholeReport& report, MetricsFormat format) {
  MetricsText text(format);
  text.Begin(kBuild);
  text.Sample({{"version", TESSERA_VERSION}}, 1);
  for (const auto& metric : DaemonMetrics()) {
    text.Begin(metric.family);
    if (!report.gpus.empty()) WriteSamples(text, metric, report.gpus.front(), {});
  }
  text.Begin(kGpuInfo);
  for (const GpuReport& gpu : report.gpus)
    text.Sample({{"gpu", std::to_string(gpu.index)}, {"uuid", gpu.uuid}, {"name", gpu.name}}, 1);
  WriteAll(text, GpuMetrics(), report.gpus);
  text.Begin(kUnmanaged);
  for (const GpuReport& gpu : report.gpus) {
    const auto others = std::ranges::count_if(report.processes, [&](const ProcessReport& process) {
      return !process.vgpu && process.gpu == gpu.index &&
             !(gpu.swap && gpu.swap->mover && *gpu.swap->mover == process.pid);
    });
    text.Sample(LabelsOf(gpu), static_cast<double>(others));
  }
  WriteAll(text, VGpuMetrics(), report.vgpus);
  WriteAll(text, SpaceMetrics(), report.spaces);
  WriteAll(text, ProcessMetrics(), Managed(report.processes));
  return std::move(text).End();
}

std::string MetricsReference() {
  std::string text =
      "# Metrics\n\n"
      "`GET /metrics` on `api.sock` answers in OpenMetrics 1.0.0 to clients that accept it, and in Prometheus' text\n"
      "format to others. This page is made from the tables of `src/face/text/metric_table.h`; a test compares it with\n"
      "them. Names of counters end in `_total`, names of information in `_info`. Histograms have `_bucket`, `_sum` "
      "and\n"
      "`_count`. Every series of a vGPU carries the labels of that vGPU, too (`tessera vgpu set --label`).\n";
  const auto table = [&](const char* title) {
    text += fmt::format("\n## {}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", title);
  };
  const auto row = [&](const MetricFamily& family) {
    constexpr std::array kTypes = {"gauge", "counter", "histogram", "info"};
    constexpr std::array kSuffixes = {"", "_total", "", "_info"};
    const auto type = static_cast<std::size_t>(family.type);
    text += fmt::format("| `{}{}` | {} | {} | {} |\n", family.name, kSuffixes[type], kTypes[type], family.labels,
                        family.help);
  };
  table("The daemon");
  row(kBuild);
  for (const auto& metric : DaemonMetrics()) row(metric.family);
  table("GPUs");
  row(kGpuInfo);
  for (const auto& metric : GpuMetrics()) row(metric.family);
  row(kUnmanaged);
  table("vGPUs");
  for (const auto& metric : VGpuMetrics()) row(metric.family);
  table("Spaces");
  for (const auto& metric : SpaceMetrics()) row(metric.family);
  table("Processes in vGPUs");
  for (const auto& metric : ProcessMetrics()) row(metric.family);
  return text;
}

}  // namespace tessera::face