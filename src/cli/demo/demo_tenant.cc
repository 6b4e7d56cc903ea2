#include "cli/demo/demo_tenant.h"

#include <algorithm>

#include "client/json_fields.h"

namespace tessera::cli {
using client::BoolField;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

// Kernels completed at `time_us`, on a straight line between the samples around it; `samples` must reach that far.
double KernelsAt(const std::vector<Sample>& samples, std::int64_t time_us) {
  const auto after = std::ranges::lower_bound(samples, time_us, {}, &Sample::time_us);
  if (after == samples.begin()) return static_cast<double>(after->kernels);
  const Sample& before = *(after - 1);
  const double part = 1.0 * (time_us - before.time_us) / (after->time_us - before.time_us);
  return before.kernels + part * (after->kernels - before.kernels);
}

}  // namespace

std::optional<double> RateBetween(const std::vector<Sample>& samples, std::int64_t from_us, std::int64_t to_us) {
  if (samples.empty() || from_us >= to_us) return std::nullopt;
  if (samples.front().time_us > from_us || samples.back().time_us < to_us) return std::nullopt;
  return (KernelsAt(samples, to_us) - KernelsAt(samples, from_us)) * 1e6 / (to_us - from_us);
}

void TenantStory::Take(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  const std::string event = TextField(json, "event");
  if (event.empty()) {
    complaint = line;
    return;
  }
  const Sample sample = {static_cast<std::int64_t>(IntegerField(json, "time_us")), IntegerField(json, "kernels")};
  if (event == "ready") {
    ready = true;
    iterations = IntegerField(json, "iterations");
    sms = IntegerField(json, "sms");
    samples.push_back(sample);
  } else if (event == "progress") {
    samples.push_back(sample);
  } else if (event == "oom") {
    refused.push_back(IntegerField(json, "granted_bytes"));
  } else if (event == "done") {
    done = true;
    verified = BoolField(json, "verified");
  }
}

void DemoTenant::Listen() {
  const std::string piece = child_.Read();
  if (piece.empty()) {
    ended_ = true;
    return;
  }
  unfinished_ += piece;
  for (std::size_t end; (end = unfinished_.find('\n')) != std::string::npos;) {
    story_.Take(unfinished_.substr(0, end));
    unfinished_.erase(0, end + 1);
  }
}

}  // namespace tessera::cli
