// The two text formats that Prometheus scrapes. They differ in where a counter's _total stands, in UNIT lines and in
// the end; in both a histogram's buckets are summed up, and its times are seconds.
#include "face/text/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text/utf8.h"

namespace tessera::face {
namespace {

constexpr double kNanosPerSecond = 1e9;

const char* NameOf(MetricType type, MetricsFormat format) {
  switch (type) {
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kCounter:
      return "counter";
    case MetricType::kHistogram:
      return "histogram";
    case MetricType::kInfo:
      return format == MetricsFormat::kOpenMetrics ? "info" : "gauge";
  }
  return "unknown";
}

const char* SuffixOf(MetricType type) {
  return type == MetricType::kCounter ? "_total" : type == MetricType::kInfo ? "_info" : "";
}

// Backslash, newline and, within labels, quotes. Names of programs may hold any bytes: control characters and what is
// no UTF-8 become '?', because a scraper drops everything for one such byte.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = std::max<std::size_t>(DecodeUtf8(std::string_view(text).substr(i)).bytes, 1);
    const std::string character = text.substr(i, bytes);
    if (character == "\\" || character == "\"") {
      escaped += "\\" + character;
    } else if (character == "\n") {
      escaped += "\\n";
    } else {
      escaped += IsPrintableUtf8(character) ? character : "?";
    }
    i += bytes;
  }
  return escaped;
}

std::string Number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{}", static_cast<long long>(value));
  return fmt::format("{}", value);
}

}  // namespace

void MetricsText::Begin(const MetricFamily& family) {
  family_ = &family;
  const bool open = format_ == MetricsFormat::kOpenMetrics;
  const std::string name = std::string(family.name) + (open ? "" : SuffixOf(family.type));
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name, NameOf(family.type, format_));
  if (open && *family.unit != '\0') text_ += fmt::format("# UNIT {} {}\n", name, family.unit);
}

void MetricsText::Line(const char* suffix, const MetricLabels& labels, const std::pair<const char*, std::string>& more,
                       double value) {
  text_ += family_->name;
  text_ += suffix;
  std::string list;
  for (const auto& [name, text] : labels)
    list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", name, Escaped(text));
  if (more.first) list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", more.first, more.second);
  if (!list.empty()) text_ += "{" + list + "}";
  text_ += " " + Number(value) + "\n";
}

void MetricsText::Sample(const MetricLabels& labels, double value) { Line(SuffixOf(family_->type), labels, {}, value); }

void MetricsText::Sample(const MetricLabels& labels, const server::Histogram& histogram) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < histogram.Buckets().size(); ++i) {
    count += histogram.Buckets()[i];
    const bool last = i == server::Histogram::kBounds.size();
    const std::string bound =
        last ? "+Inf" : fmt::format("{}", static_cast<double>(server::Histogram::kBounds[i]) / kNanosPerSecond);
    Line("_bucket", labels, {"le", bound}, static_cast<double>(count));
  }
  Line("_sum", labels, {}, static_cast<double>(histogram.Sum()) / kNanosPerSecond);
  Line("_count", labels, {}, static_cast<double>(count));
}

std::string MetricsText::End() && {
  if (format_ == MetricsFormat::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace tessera::face
