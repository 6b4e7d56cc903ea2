#include "plan/input/mix_keys.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/duration.h"
#include "base/size.h"
#include "base/text/utf8.h"

namespace tessera::plan {
namespace {

using Node = toml::node;

constexpr double kMostPerSecond = 1e6;  // bursts

// An error of a parser that does not know for which key it parses.
std::unexpected<Error> Of(std::string_view key, const Error& error) {
  return Fail(error.code, fmt::format("{}: {}", key, error.message), error.hint);
}

// A number, whole or not, in (more_than, most], or [0, most] if `more_than` is below 0.
std::optional<double> NumberOf(const Node& node, double more_than, double most) {
  const auto number = node.is_number() ? node.value<double>() : std::nullopt;
  return number && *number > more_than && *number >= 0 && *number <= most ? number : std::nullopt;
}

// Keys whose values are of one kind each; `field` is where it goes.
template <typename Into>
MixKey<Into> Number(const char* key, double more_than, double most, const char* form, double& (*field)(Into&)) {
  return {key, [=](const Node& node, Into& into) -> Result<void> {
            const auto number = NumberOf(node, more_than, most);
            if (!number) return MustBe(key, form);
            field(into) = *number;
            return {};
          }};
}

template <typename Into, typename Field>
MixKey<Into> Whole(const char* key, std::int64_t least, std::int64_t most, Field& (*field)(Into&)) {
  return {key, [=](const Node& node, Into& into) -> Result<void> {
            const auto number = node.is_integer() ? node.value<std::int64_t>() : std::nullopt;
            if (!number || *number < least || *number > most)
              return MustBe(key, fmt::format("a whole number from {} to {}", least, most));
            field(into) = static_cast<Field>(*number);
            return {};
          }};
}

template <typename Into>
MixKey<Into> Duration(const char* key, Nanos least, Nanos& (*field)(Into&)) {
  return {key, [=](const Node& node, Into& into) -> Result<void> {
            const auto time = DurationOf(node, key, least);
            if (!time) return std::unexpected(time.error());
            field(into) = *time;
            return {};
          }};
}

template <typename Into>
MixKey<Into> Text(const char* key, std::string& (*field)(Into&)) {
  return {key, [=](const Node& node, Into& into) -> Result<void> {
            const auto text = node.is_string() ? node.value<std::string>() : std::nullopt;
            if (!text || text->empty() || text->size() > 4095 || !IsPrintableUtf8(*text))
              return MustBe(key, "a text without control characters");
            field(into) = *text;
            return {};
          }};
}

MixKey<MixTenant> Size(const char* key, std::uint64_t& (*field)(MixTenant&)) {
  return {key, [=](const Node& node, MixTenant& into) -> Result<void> {
            const auto text = node.value<std::string>();
            if (!text) return MustBe(key, "a size, such as \"20G\"");
            const auto size = ParseSize(*text);
            if (!size) return Of(key, size.error());
            field(into) = *size;
            return {};
          }};
}

// "30": promised, and the most; "30:60": promised:most. As --compute of the command line.
Result<void> SetCompute(const Node& node, MixTenant& into) {
  std::string text = node.value<std::string>().value_or("");
  if (const auto number = NumberOf(node, -1, 100)) text = fmt::format("{}", *number);
  const std::size_t colon = text.find(':');
  const auto request = ParsePercent(text.substr(0, colon));
  if (!request) return Of("compute", request.error());
  const auto limit = colon == text.npos ? request : ParsePercent(text.substr(colon + 1));
  if (!limit) return Of("compute", limit.error());
  if (*request > *limit) return Fail(EINVAL, "compute: the request exceeds the limit", "write REQUEST:LIMIT");
  if (*limit == 0) return Fail(ERANGE, "compute: the limit is 0", "use a percentage above 0");
  into.tenant.request_pct = *request;
  into.tenant.limit_pct = *limit;
  return {};
}

Result<void> SetGoal(const Node& node, MixTenant& into) {
  const auto text = node.value<std::string>();
  if (!text) return MustBe("goal", "a text, such as \"p99=20ms\" or \"speed=80%\"");
  auto goal = sched::ParseGoal(*text);
  if (!goal) return std::unexpected(goal.error());
  into.tenant.goal = *goal;
  return {};
}

Result<void> SetSms(const Node& node, MixTenant& into) {
  const auto part = NumberOf(node, 0, 1);
  if (!part) return MustBe("sms", "a part of the SMs, above 0 and at most 1");
  into.tenant.speed = SpeedCurve::Saturating(*part);
  into.has_sms = true;
  return {};
}

Result<void> SetSpeed(const Node& node, MixTenant& into) {
  constexpr const char* kForm = "a list of [SMs, speed], such as [[0.1, 0.3], [0.5, 0.9]]";
  const toml::array* list = node.as_array();
  if (list == nullptr || list->empty() || list->size() > 1000) return MustBe("speed", kForm);
  std::vector<SpeedCurve::Point> points;
  for (const Node& each : *list) {
    const toml::array* pair = each.as_array();
    if (pair == nullptr || pair->size() != 2 || !pair->get(0)->is_number() || !pair->get(1)->is_number())
      return MustBe("speed", kForm);
    const auto sms = pair->get(0)->value<double>();
    const auto speed = pair->get(1)->value<double>();
    if (!sms || !speed) return MustBe("speed", kForm);
    points.push_back({*sms, *speed});
  }
  auto curve = SpeedCurve::Of(std::move(points));
  if (!curve) return Of("speed", curve.error());
  into.tenant.speed = *std::move(curve);
  into.has_speed = true;
  return {};
}

// Keys of the table of `arrivals`.
const std::vector<MixKey<MixTenant>>& ArrivalKeys() {
  using Into = MixTenant;
  static const std::vector<MixKey<Into>> keys = {
      Number<Into>(
          "poisson", 0, kMostPerSecond, "a number of bursts a second, above 0 and at most 1000000",
          +[](Into& into) -> double& {
            into.tenant.arrivals.kind = Arrivals::Kind::kPoisson;
            return into.tenant.arrivals.per_second;
          }),
      {"every",
       [](const Node& node, Into& into) -> Result<void> {
         const auto time = DurationOf(node, "every", kMicrosecond);
         if (!time) return std::unexpected(time.error());
         into.tenant.arrivals.kind = Arrivals::Kind::kEven;
         into.tenant.arrivals.per_second = static_cast<double>(kSecond) / static_cast<double>(*time);
         return {};
       }},
      Text<Into>(
          "file", +[](Into& into) -> std::string& { return into.arrivals_file; }),
      Text<Into>(
          "column", +[](Into& into) -> std::string& { return into.arrivals_choice.column; }),
      {"gaps",
       [](const Node& node, Into& into) -> Result<void> {
         if (!node.is_boolean()) return MustBe("gaps", "true or false");
         into.arrivals_choice.gaps = *node.value<bool>();
         return {};
       }},
      Text<Into>(
          "client", +[](Into& into) -> std::string& { return into.arrivals_choice.client; }),
      Duration<Into>(
          "per_context_token", 0, +[](Into& into) -> Nanos& { return into.arrivals_choice.cost.per_context_token; }),
      Duration<Into>(
          "per_generated_token", 0,
          +[](Into& into) -> Nanos& { return into.arrivals_choice.cost.per_generated_token; }),
  };
  return keys;
}

Result<void> SetArrivals(const Node& node, MixTenant& into) {
  constexpr const char* kForm = "\"closed\", { poisson = 12.5 }, { every = \"10ms\" } or { file = \"arrivals.csv\" }";
  if (node.value<std::string>() == "closed") return {};
  const toml::table* table = node.as_table();
  if (table == nullptr) return MustBe("arrivals", kForm);
  if (auto set = SetKeys(*table, ArrivalKeys(), "", into); !set) return Of("arrivals", set.error());
  const int ways = table->contains("poisson") + table->contains("every") + table->contains("file");
  if (ways != 1) return MustBe("arrivals", kForm);
  if (!table->contains("file") && table->size() > 1)
    return Fail(EINVAL, "arrivals: only those of a file can have a column, a client or tokens");
  return {};
}

}  // namespace

std::unexpected<Error> MustBe(std::string_view key, std::string_view what) {
  return Fail(EINVAL, fmt::format("{} must be {}", key, what));
}

Result<Nanos> DurationOf(const Node& node, std::string_view key, Nanos least) {
  const auto text = node.value<std::string>();
  if (!text) return MustBe(key, "a duration, such as \"12ms\"");
  const auto time = ParseDuration(*text);
  if (!time) return Of(key, time.error());
  if (*time < least) return Fail(ERANGE, fmt::format("{}: '{}' is too short", key, *text));
  return *time;
}

const std::vector<MixKey<MixTenant>>& TenantKeys() {
  using Into = MixTenant;
  static const std::vector<MixKey<Into>> keys = {
      Text<Into>(
          "name", +[](Into& into) -> std::string& { return into.tenant.name; }),
      Whole<Into>(
          "count", 1, kMostTenants, +[](Into& into) -> std::uint64_t& { return into.count; }),
      Text<Into>(
          "group", +[](Into& into) -> std::string& { return into.tenant.group; }),
      Size(
          "memory", +[](Into& into) -> std::uint64_t& { return into.tenant.memory; }),
      Size(
          "memory_request", +[](Into& into) -> std::uint64_t& { return into.tenant.memory_request; }),
      Whole<Into>(
          "gpus", 1, 1024, +[](Into& into) -> std::uint32_t& { return into.tenant.gpus; }),
      {"compute", SetCompute},
      Whole<Into>(
          "weight", 1, 10'000, +[](Into& into) -> std::uint32_t& { return into.tenant.weight; }),
      Whole<Into>(
          "priority", 0, 15, +[](Into& into) -> std::uint32_t& { return into.tenant.priority; }),
      {"goal", SetGoal},
      Duration<Into>(
          "service", kMicrosecond, +[](Into& into) -> Nanos& { return into.tenant.service; }),
      Number<Into>(
          "rate_alone", 0, kMostPerSecond, "a number of bursts a second, above 0 and at most 1000000",
          +[](Into& into) -> double& { return into.tenant.bursts_alone; }),
      {"arrivals", SetArrivals},
      {"sms", SetSms},
      {"speed", SetSpeed},
      Number<Into>(
          "bandwidth", -1, 1, "a part of the memory's bandwidth, from 0 to 1",
          +[](Into& into) -> double& { return into.tenant.bandwidth; }),
      Number<Into>(
          "beside", 0, 1, "a part of the speed alone, above 0 and at most 1",
          +[](Into& into) -> double& { return into.tenant.beside; }),
  };
  return keys;
}

}  // namespace tessera::plan
