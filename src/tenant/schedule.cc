#include "tenant/schedule.h"

#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <string_view>

namespace tessera::tenant {
namespace {

constexpr std::string_view kColumns = "second,duty_pct,memory_mib";
constexpr double kLongest = 1e9;  // seconds
constexpr double kMostMib = 1e9;  // 1 EiB and less than a word holds

std::optional<std::array<double, 3>> Numbers(std::string_view line) {
  std::array<double, 3> numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t comma = line.find(',');
    const std::string_view field = line.substr(0, comma);
    const auto [end, status] = std::from_chars(field.begin(), field.end(), numbers[i]);
    if (status != std::errc() || end != field.end() || !std::isfinite(numbers[i]) || numbers[i] < 0) return {};
    if ((comma == line.npos) != (i + 1 == numbers.size())) return {};
    line.remove_prefix(comma == line.npos ? line.size() : comma + 1);
  }
  if (numbers[0] > kLongest || numbers[1] > 100 || numbers[2] > kMostMib) return {};
  return numbers;
}

}  // namespace

Result<Schedule> Schedule::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Fail(errno ? errno : EIO, "cannot read " + path);
  std::vector<Step> steps;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::string where = path + ":" + std::to_string(number) + ": ";
    if (number == 1) {
      if (line != kColumns) return Fail(EINVAL, where + "the first line must be " + std::string(kColumns));
      continue;
    }
    const auto row = Numbers(line);
    if (!row) return Fail(EINVAL, where + "not a time in seconds, a percentage and a number of MiB");
    const Step step{.at = static_cast<Nanos>((*row)[0] * kSecond),
                    .duty = (*row)[1] / 100,
                    .memory = static_cast<std::uint64_t>((*row)[2] * (1 << 20))};
    if (!steps.empty() && step.at <= steps.back().at)
      return Fail(EINVAL, where + "the time is not after the one before");
    steps.push_back(step);
  }
  if (steps.size() < 2) return Fail(EINVAL, path + ": fewer than two rows; the last one says when it ends");
  return Schedule(std::move(steps));
}

std::vector<Nanos> Schedule::Due(Nanos service) const {
  std::vector<Nanos> due;
  double work = 0;  // since the last burst was due, ns
  for (std::size_t i = 0; i + 1 < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const double length = steps_[i + 1].at - step.at;
    double at = 0;
    while (step.duty > 0) {
      const double next = at + (service - work) / step.duty;
      if (next > length) break;
      due.push_back(step.at + static_cast<Nanos>(next));
      at = next;
      work = 0;
    }
    work += (length - at) * step.duty;
  }
  return due;
}

}  // namespace tessera::tenant
