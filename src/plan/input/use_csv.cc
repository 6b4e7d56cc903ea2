#include "plan/input/use_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/size.h"
#include "base/text/counted.h"
#include "base/text/utf8.h"

namespace tessera::plan {
namespace {

constexpr double kLastSecond = 4e9;      // of Unix time, in the year 2096
constexpr double kMostMiB = 1ull << 30;  // of memory: 1 PiB
constexpr Nanos kSampleGap = 3;          // so many intervals without a row: the tenant was away
constexpr Nanos kUnknownInterval = 60 * kSecond;

class UseReader {
 public:
  explicit UseReader(CsvReader& csv) : csv_(csv) {}

  Result<Workload> Read() {
    if (auto found = FindColumns(); !found) return std::unexpected(found.error());
    for (;;) {
      const auto row = csv_.Next();
      if (!row) return std::unexpected(row.error());
      if (!*row) break;
      if (auto added = AddRow(); !added) return std::unexpected(added.error());
    }
    if (workload_.tenants.empty()) return Fail(EINVAL, csv_.name() + " has no samples");
    FindInterval();
    for (Tenant& tenant : workload_.tenants) CloseGaps(tenant);
    Note();
    return std::move(workload_);
  }

 private:
  Result<void> FindColumns() {
    for (const auto& [name, index] : {std::pair{"second", &second_},
                                      {csv_.Has("pod") ? "pod" : "vgpu", &tenant_},
                                      {"duty_pct", &duty_},
                                      {"memory_mib", &memory_}}) {
      const auto column = csv_.Column(name);
      if (!column) return std::unexpected(column.error());
      *index = *column;
    }
    if (csv_.Has("gpu")) gpu_ = *csv_.Column("gpu");
    if (csv_.Has("group")) group_ = *csv_.Column("group");
    return {};
  }

  Result<void> AddRow() {
    const auto second = csv_.Number(second_, 0, kLastSecond);
    if (!second) return std::unexpected(second.error());
    if (first_ && *second < last_)
      return csv_.WrongField(EINVAL, second_, fmt::format("is before the row above, {}: the clock goes back", last_),
                             "sort the file by second");
    if (!first_) first_ = *second;
    last_ = *second;
    if (csv_.Field(duty_).empty() || csv_.Field(memory_).empty()) {
      ++without_value_;
      return {};
    }
    const auto duty = csv_.Number(duty_, 0, 100);
    if (!duty) return std::unexpected(duty.error());
    const auto memory = csv_.Number(memory_, 0, kMostMiB);
    if (!memory) return std::unexpected(memory.error());
    auto tenant = TenantOfRow();
    if (!tenant) return std::unexpected(tenant.error());
    const UseSample sample{static_cast<Nanos>(std::llround((last_ - *first_) * kSecond)),
                           static_cast<float>(*duty / 100), static_cast<std::uint64_t>(*memory * kMiB)};
    std::vector<UseSample>& samples = (*tenant)->samples;
    if (!samples.empty() && samples.back().at == sample.at)
      return csv_.WrongField(EINVAL, tenant_, "has two rows of the same second");
    (*tenant)->memory = std::max((*tenant)->memory, sample.memory);
    samples.push_back(sample);
    return {};
  }

  Result<Tenant*> TenantOfRow() {
    const std::string& name = csv_.Field(tenant_);
    const auto found = numbers_.find(name);
    if (found == numbers_.end() && (name.empty() || name.size() > 253 || !IsPrintableUtf8(name)))
      return csv_.WrongField(EINVAL, tenant_, "is no name", "use 1 to 253 printable characters");
    if (found == numbers_.end()) {
      numbers_.emplace(name, workload_.tenants.size());
      workload_.tenants.push_back({.name = name, .group = group_ ? csv_.Field(*group_) : ""});
    }
    Tenant& tenant = found == numbers_.end() ? workload_.tenants.back() : workload_.tenants[found->second];
    if (gpu_ && tenant.ran_on != csv_.Field(*gpu_)) tenant.ran_on = csv_.Field(*gpu_);
    return &tenant;
  }

  // Between two samples of a tenant; the median of what the first tenants show.
  void FindInterval() {
    constexpr std::size_t kEnough = 100'000;
    std::vector<Nanos> steps;
    for (const Tenant& tenant : workload_.tenants) {
      for (std::size_t i = 1; i < tenant.samples.size() && steps.size() < kEnough; ++i)
        steps.push_back(tenant.samples[i].at - tenant.samples[i - 1].at);
    }
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::ranges::nth_element(steps, middle);
    workload_.interval = steps.empty() ? kUnknownInterval : *middle;
    if (steps.empty()) {
      workload_.notes.push_back(fmt::format("each program has one sample only: {} s are taken as the time between two",
                                            kUnknownInterval / kSecond));
    }
  }

  void CloseGaps(Tenant& tenant) {
    const Nanos interval = workload_.interval;
    std::vector<UseSample> whole;
    std::uint64_t gaps = 0;
    for (const UseSample& sample : tenant.samples) {
      const Nanos since = whole.empty() ? 0 : sample.at - whole.back().at;
      if (since > kSampleGap * interval) {
        whole.push_back({whole.back().at + interval, 0, 0});
        ++gaps;
      } else if (since > interval + interval / 2) {
        ++missing_;
      }
      whole.push_back(sample);
    }
    if (gaps > 0) tenant.samples = std::move(whole);
    gaps_ += gaps;
    away_ += gaps > 0;
    workload_.length = std::max(workload_.length, tenant.samples.back().at + interval);
  }

  void Note() {
    const double interval = static_cast<double>(workload_.interval) / kSecond;
    if (gaps_ > 0) {
      workload_.notes.push_back(fmt::format("{} of more than {} samples, in {}: taken as away, without memory",
                                            Counted(gaps_, "gap"), kSampleGap, Counted(away_, "program")));
    }
    if (missing_ > 0) {
      workload_.notes.push_back(fmt::format("{} (samples are {} s apart): the sample before each lasts as long",
                                            Counted(missing_, "shorter gap"), interval));
    }
    if (without_value_ > 0)
      workload_.notes.push_back(fmt::format(
          "{} left out", Counted(without_value_, "row without duty or memory is", "rows without duty or memory are")));
  }

  CsvReader& csv_;
  std::size_t second_ = 0, tenant_ = 0, duty_ = 0, memory_ = 0;  // columns
  std::optional<std::size_t> gpu_, group_;
  Workload workload_;
  std::unordered_map<std::string, std::size_t> numbers_;  // of the tenants, by name
  std::optional<double> first_;                           // second of the first row
  double last_ = 0;                                       // of the present row
  std::uint64_t without_value_ = 0, gaps_ = 0, away_ = 0, missing_ = 0;
};

}  // namespace

bool IsUse(const CsvReader& csv) {
  constexpr std::string_view kKnown[] = {"second", "pod", "vgpu", "gpu", "group", "duty_pct", "memory_mib"};
  return csv.Has("second") && csv.Has("duty_pct") && csv.Has("memory_mib") && csv.Has("pod") != csv.Has("vgpu") &&
         std::ranges::all_of(csv.columns(),
                             [&](const std::string& column) { return std::ranges::count(kKnown, column) > 0; });
}

Result<Workload> ReadUse(CsvReader& csv) { return UseReader(csv).Read(); }

}  // namespace tessera::plan
