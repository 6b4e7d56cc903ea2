#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/text/counted.h"
#include "cli/plan/advise_sources.h"
#include "cli/plan/http_get.h"
#include "client/json_fields.h"

namespace tessera::cli {
namespace {

using client::Field;
using client::Json;
using client::TextField;

// A value of a series; `moment` counts from the begin of the range.
using TakeValue = std::function<Result<void>(const Json& labels, std::size_t moment, double value)>;

class PrometheusRange {
 public:
  static constexpr std::int64_t kMostMoments = 11'000;  // that a Prometheus gives of a series

  PrometheusRange(HttpAddress address, std::int64_t end_s, std::int64_t length_s, std::int64_t step_s)
      : address_(std::move(address)), begin_s_(end_s - length_s), end_s_(end_s), step_s_(step_s) {}

  std::string Step() const { return std::to_string(step_s_) + "s"; }

  // Asks for a range, and passes on each value that is a number. EPROTO: it is no Prometheus, or refuses the question.
  Result<void> Ask(const std::string& query, const TakeValue& take) const {
    const auto answer =
        HttpGet(address_, "/api/v1/query_range?query=" + QueryEscaped(query) + "&start=" + std::to_string(begin_s_) +
                              "&end=" + std::to_string(end_s_) + "&step=" + std::to_string(step_s_));
    if (!answer) return std::unexpected(answer.error());
    const Json json = Json::parse(answer->body, nullptr, false);
    const std::string who = "the program at " + address_.host + ":" + address_.port;
    if (TextField(json, "status") == "error") return Fail(EPROTO, who + " says: " + TextField(json, "error"));
    const Json& series = Field(Field(json, "data"), "result");
    if (TextField(json, "status") != "success" || !series.is_array()) {
      return Fail(EPROTO, who + " does not answer as a Prometheus (HTTP status " + std::to_string(answer->status) + ")",
                  "check the address, and the path if it is behind a proxy");
    }
    for (const Json& each : series) {
      const Json& values = Field(each, "values");
      if (!values.is_array()) continue;
      for (const Json& value : values) {
        if (auto taken = TakeOne(Field(each, "metric"), value, take); !taken) return taken;
      }
    }
    return {};
  }

 private:
  Result<void> TakeOne(const Json& labels, const Json& value, const TakeValue& take) const {
    if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_string()) {
      return Fail(EPROTO, "a value of the answer is not a time and a number");
    }
    const double moment =
        std::round((value[0].get<double>() - static_cast<double>(begin_s_)) / static_cast<double>(step_s_));
    const std::string text = value[1].get<std::string>();
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (!whole || !std::isfinite(number) || moment < 0 || moment > kMostMoments) return {};  // "NaN" is no number
    return take(labels, static_cast<std::size_t>(moment), number);
  }

  HttpAddress address_;
  std::int64_t begin_s_, end_s_, step_s_;
};

std::size_t GpuOf(const Json& labels, SeenFleetBuilder& builder) {
  return builder.GpuIndex(TextField(labels, "instance"), TextField(labels, "gpu"));
}

std::size_t VgpuOf(const Json& labels, SeenFleetBuilder& builder) {
  return builder.VgpuIndex(TextField(labels, "instance"), TextField(labels, "vgpu"));
}

double UpTo1(double part) { return std::clamp(part, 0.0, 1.0); }

// The metrics of vGPUs whose values are samples.
Result<void> AskSamples(const PrometheusRange& range, SeenFleetBuilder& builder) {
  using sched::UsedSample;
  const auto ask = [&](const std::string& query, void (*set)(UsedSample&, double), bool is_there) {
    return range.Ask(query, [&, set, is_there](const Json& labels, std::size_t moment, double value) -> Result<void> {
      const std::size_t vgpu = VgpuOf(labels, builder);
      const auto sample = builder.Sample(vgpu, moment);
      if (!sample) return std::unexpected(sample.error());
      if (is_there) {
        (*sample)->there = true;
        builder.Vgpu(vgpu).gpu = GpuOf(labels, builder);
        if (const std::string pod = TextField(labels, "pod"); !pod.empty())
          builder.SetPod(vgpu, {.namespace_name = TextField(labels, "namespace"), .pod = pod});
      }
      set(**sample, value);
      return {};
    });
  };
  const auto rate = [&](const std::string& metric) { return "rate(" + metric + "[" + range.Step() + "])"; };
  auto done = ask(
      rate("tessera_vgpu_compute_busy_seconds_total"), [](UsedSample& used, double value) { used.duty = UpTo1(value); },
      true);
  if (done)
    done = ask(
        "tessera_vgpu_memory_current_bytes",
        [](UsedSample& used, double value) { used.memory = static_cast<std::uint64_t>(std::max(0.0, value)); }, false);
  if (done)
    done = ask(
        rate("tessera_vgpu_compute_waited_seconds_total"),
        [](UsedSample& used, double value) { used.waited = UpTo1(value); }, false);
  if (done)
    done = ask(
        rate("tessera_vgpu_throttled_seconds_total"),
        [](UsedSample& used, double value) { used.throttled = UpTo1(value); }, false);
  if (done)
    done = ask(
        rate("tessera_vgpu_goal_violations_total"), [](UsedSample& used, double value) { used.violated = value > 0; },
        false);
  return done;
}

// What GPUs and vGPUs are; of several values the last.
Result<void> AskTerms(const PrometheusRange& range, SeenFleetBuilder& builder) {
  using sched::MeteredVgpu;
  const std::pair<const char*, void (*)(MeteredVgpu&, double)> terms[] = {
      {"tessera_vgpu_compute_request_ratio", [](MeteredVgpu& vgpu, double value) { vgpu.request_pct = 100 * value; }},
      {"tessera_vgpu_compute_limit_ratio", [](MeteredVgpu& vgpu, double value) { vgpu.limit_pct = 100 * value; }},
      {"tessera_vgpu_memory_request_bytes",
       [](MeteredVgpu& vgpu, double value) { vgpu.memory_request = static_cast<std::uint64_t>(std::max(0.0, value)); }},
      {"tessera_vgpu_memory_limit_bytes",
       [](MeteredVgpu& vgpu, double value) { vgpu.memory_limit = static_cast<std::uint64_t>(std::max(0.0, value)); }},
      {"tessera_vgpu_goal_violations_total", [](MeteredVgpu& vgpu, double) { vgpu.goal = true; }},
  };
  for (const auto& [metric, set] : terms) {
    const auto done = range.Ask(metric, [&, set](const Json& labels, std::size_t, double value) -> Result<void> {
      set(builder.Vgpu(VgpuOf(labels, builder)), value);
      return {};
    });
    if (!done) return done;
  }
  auto done = range.Ask("tessera_gpu_memory_total_bytes - on(instance, gpu) tessera_gpu_memory_reserve_bytes",
                        [&](const Json& labels, std::size_t, double value) -> Result<void> {
                          builder.Gpu(GpuOf(labels, builder)).memory = static_cast<std::uint64_t>(std::max(0.0, value));
                          return {};
                        });
  if (!done) return done;
  return range.Ask("tessera_gpu_info", [&](const Json& labels, std::size_t, double) -> Result<void> {
    builder.Gpu(GpuOf(labels, builder)).type = TextField(labels, "name");
    return {};
  });
}

}  // namespace

Result<SeenFleet> AskPrometheus(const std::string& url, Nanos length, Nanos every) {
  const auto address = ParseHttpAddress(url);
  if (!address) return std::unexpected(address.error());
  const std::int64_t step_s = every / kSecond, length_s = length / kSecond;
  if (step_s < 1) return Fail(EINVAL, "--every is less than a second, and a Prometheus is asked by the second");
  if (length_s / step_s >= PrometheusRange::kMostMoments) {
    return Fail(E2BIG, "a Prometheus gives at most 11000 values of a series", "choose a larger --every");
  }
  const PrometheusRange range(*address, std::time(nullptr), length_s, step_s);
  SeenFleetBuilder builder;
  if (auto done = AskSamples(range, builder); !done) return std::unexpected(done.error());
  if (builder.moments() == 0) {
    return Fail(ENODATA, "the Prometheus at " + url + " has no metrics of tesserad in this time",
                "see that it scrapes tesserad at least twice in each --every, or choose a larger --every or --for");
  }
  if (auto done = AskTerms(range, builder); !done) return std::unexpected(done.error());
  const std::size_t moments = builder.moments();
  return builder.Finish(Counted(moments, "sample") + " of " + std::to_string(step_s) + " s each");
}

}  // namespace tessera::cli
