#include "plan/input/input_fuzz.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <sstream>

#include "base/text/utf8.h"
#include "plan/input/read_workload.h"
#include "sched/shares/shares.h"

namespace tessera::plan {
namespace {

std::string FaultOfSamples(const Tenant& tenant) {
  Nanos before = -1;
  std::uint64_t most = 0;
  for (const UseSample& sample : tenant.samples) {
    if (sample.at <= before) return "samples do not ascend";
    if (!(sample.duty >= 0 && sample.duty <= 1)) return "a duty outside [0, 1]";
    before = sample.at;
    most = std::max(most, sample.memory);
  }
  return tenant.samples.empty() || most == tenant.memory ? "" : "its memory is not the most of its samples";
}

std::string FaultOfArrivals(const Tenant& tenant) {
  const Arrivals& arrivals = tenant.arrivals;
  const bool at_times = arrivals.kind == Arrivals::Kind::kTimes;
  const bool at_rate = arrivals.kind == Arrivals::Kind::kPoisson || arrivals.kind == Arrivals::Kind::kEven;
  if (at_times == arrivals.times.empty()) return "arrivals of another kind";
  if (at_rate && !(arrivals.per_second > 0 && std::isfinite(arrivals.per_second))) return "no rate";
  if (!std::ranges::is_sorted(arrivals.times) || (at_times && arrivals.times.front() < 0))
    return "arrivals do not ascend";
  if (!arrivals.services.empty() && arrivals.services.size() != arrivals.times.size()) return "a service is missing";
  if (std::ranges::any_of(arrivals.services, [](Nanos service) { return service <= 0; })) return "a service of nothing";
  return "";
}

std::string FaultOf(const Tenant& tenant) {
  if (tenant.name.empty() || !IsPrintableUtf8(tenant.name)) return "no name";
  if (tenant.samples.empty() == (tenant.service == 0)) return "neither a record nor work, or both";
  if (tenant.service < 0 || tenant.bursts_alone < 0 || !std::isfinite(tenant.bursts_alone)) return "a wrong service";
  if (tenant.memory_request > tenant.memory || tenant.gpus == 0) return "a wrong size";
  if (!(tenant.bandwidth >= 0 && tenant.bandwidth <= 1)) return "a wrong bandwidth";
  const sched::Shares shares{.request_pct = tenant.request_pct,
                             .limit_pct = tenant.limit_pct,
                             .weight = tenant.weight,
                             .priority = tenant.priority};
  if (auto valid = sched::Validate(shares); !valid) return valid.error().message;
  if (tenant.speed.At(1) != 1 || !(tenant.speed.At(0.5) >= 0)) return "a wrong curve";
  if (std::string fault = FaultOfSamples(tenant); !fault.empty()) return fault;
  return FaultOfArrivals(tenant);
}

std::string FaultOf(const Workload& workload) {
  if (workload.tenants.empty() || workload.length < 0 || workload.title.empty()) return "an empty workload";
  std::set<std::string> names;
  for (const Tenant& tenant : workload.tenants) {
    if (std::string fault = FaultOf(tenant); !fault.empty()) return fault;
    if (!names.insert(tenant.name).second) return "a name twice";
    if (!tenant.samples.empty() && (workload.interval <= 0 || tenant.samples.back().at >= workload.length))
      return "a sample beyond the end";
  }
  return "";
}

}  // namespace

std::string RunInput(std::span<const std::uint8_t> bytes) {
  // Files that a mix names are not there.
  constexpr std::array kNames = {"/nonexistent/x.csv", "/nonexistent/x.toml", "/nonexistent/x.json"};
  if (bytes.empty()) return "";
  const std::string name = kNames[bytes[0] % kNames.size()];
  std::string text(bytes.begin() + 1, bytes.end());
  const auto workload = ReadWorkloadFrom(std::make_unique<std::istringstream>(std::move(text)), name, {});
  if (workload) return FaultOf(*workload);
  const Error& error = workload.error();
  if (error.code <= 0 || !error.message.starts_with("/nonexistent/x.")) return "an error without a place";
  if (error.Text().size() > 2000) return "an error as long as a book";
  return IsPrintableUtf8(error.Text()) ? "" : "an error that cannot be printed: " + error.Text();
}

}  // namespace tessera::plan
