#include "plan/input/arrival_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text/utf8.h"
#include "plan/input/timestamp.h"

namespace tessera::plan {
namespace {

constexpr double kLastArrival = 366.0 * 24 * 3600;  // seconds from the begin
constexpr double kMostTokens = 1e9;
constexpr Nanos kLongestRequest = 3600 * kSecond;

struct ArrivalColumns {
  std::size_t time = 0;
  double unit = 0;  // of the time, in seconds; 0: they are dates
  bool gaps = false;
  std::optional<std::size_t> client;
  bool tokens = false;  // it counts them:
  std::size_t context = 0, generated = 0;
};

// "_s", "_ms" or "_us" at the end of a column's name, in seconds; 0: none of them.
double UnitOf(std::string_view column) {
  for (const auto& [suffix, unit] : {std::pair<std::string_view, double>{"_s", 1}, {"_ms", 1e-3}, {"_us", 1e-6}}) {
    if (column.ends_with(suffix)) return unit;
  }
  return 0;
}

Result<ArrivalColumns> FindColumns(const CsvReader& csv, const ArrivalChoice& choice) {
  ArrivalColumns columns;
  std::string time = choice.column;
  columns.gaps = choice.gaps;
  if (time.empty()) {
    if (!IsArrivals(csv)) {
      return Fail(EINVAL, csv.name() + ": the columns are none of the known formats of arrivals",
                  fmt::format("name the one with the times by `column`; known are {}; {}; {}", kTokenColumns,
                              kClientColumns, kGapColumn));
    }
    time = csv.Has("TIMESTAMP") ? "TIMESTAMP" : csv.Has("at_ms") ? "at_ms" : kGapColumn;
    columns.gaps = time == kGapColumn;
  }
  const auto found = csv.Column(time);
  if (!found) return std::unexpected(found.error());
  columns.time = *found;
  columns.unit = UnitOf(time);
  if (columns.unit == 0 && time != "TIMESTAMP") {
    return Fail(EINVAL, fmt::format("{}: the unit of column {} is not known", csv.name(), time),
                "name it with _s, _ms or _us at its end");
  }
  if (csv.Has("client")) columns.client = *csv.Column("client");
  if (csv.Has("ContextTokens") && csv.Has("GeneratedTokens")) {
    columns.tokens = true;
    columns.context = *csv.Column("ContextTokens");
    columns.generated = *csv.Column("GeneratedTokens");
  }
  return columns;
}

// Reads the rows of one file into the arrivals of the clients that it names.
class ArrivalReader {
 public:
  // Where a client's arrivals go; null: its rows are not wanted.
  using Place = std::function<Result<Arrivals*>(const std::string& client)>;

  ArrivalReader(CsvReader& csv, ArrivalColumns columns, const RequestCost& cost)
      : csv_(csv), columns_(columns), cost_(cost) {}

  Result<void> Read(const Place& place) {
    const std::string nobody;
    for (;;) {
      const auto row = csv_.Next();
      if (!row) return std::unexpected(row.error());
      if (!*row) return {};
      const auto arrivals = place(columns_.client ? csv_.Field(*columns_.client) : nobody);
      if (!arrivals) return std::unexpected(arrivals.error());
      if (*arrivals == nullptr) continue;
      if (auto added = AddRow(**arrivals); !added) return added;
    }
  }

 private:
  Result<void> AddRow(Arrivals& arrivals) {
    const auto time = Time(arrivals);
    if (!time) return std::unexpected(time.error());
    if (!arrivals.times.empty() && *time < arrivals.times.back())
      return csv_.WrongField(EINVAL, columns_.time, "is before the arrival above: the clock goes back",
                             "sort the file by time");
    arrivals.times.push_back(*time);
    if (!columns_.tokens || (cost_.per_context_token == 0 && cost_.per_generated_token == 0)) return {};
    const auto context = csv_.Number(columns_.context, 0, kMostTokens);
    if (!context) return std::unexpected(context.error());
    const auto generated = csv_.Number(columns_.generated, 0, kMostTokens);
    if (!generated) return std::unexpected(generated.error());
    const double service = *context * static_cast<double>(cost_.per_context_token) +
                           *generated * static_cast<double>(cost_.per_generated_token);
    if (service > static_cast<double>(kLongestRequest))
      return csv_.Wrong(ERANGE, "a request of more than an hour of GPU time", "give less time for a token");
    arrivals.services.push_back(std::max<Nanos>(static_cast<Nanos>(service), kMicrosecond));
    return {};
  }

  // Since the begin.
  Result<Nanos> Time(const Arrivals& arrivals) {
    if (columns_.unit == 0) {
      const auto stamp = ParseTimestamp(csv_.Field(columns_.time));
      if (!stamp) return csv_.WrongField(EINVAL, columns_.time, "is no time", "write 2023-11-16 18:17:03.97");
      if (!first_) first_ = stamp;
      return *stamp - *first_;
    }
    const double most = kLastArrival / columns_.unit;
    const auto number = csv_.Number(columns_.time, 0, most);
    if (!number) return std::unexpected(number.error());
    const Nanos time = std::llround(*number * columns_.unit * kSecond);
    if (!columns_.gaps) return time;
    const Nanos before = arrivals.times.empty() ? 0 : arrivals.times.back();
    if (static_cast<double>(before + time) > kLastArrival * kSecond)
      return csv_.Wrong(ERANGE, "more than a year after the begin");
    return before + time;
  }

  CsvReader& csv_;
  const ArrivalColumns columns_;
  const RequestCost cost_;
  std::optional<Nanos> first_;  // date of the first row
};

}  // namespace

bool IsArrivals(const CsvReader& csv) {
  const std::vector<std::string>& columns = csv.columns();
  const auto are = [&](std::initializer_list<std::string_view> known) {
    return columns.size() == known.size() && std::ranges::all_of(known, [&](auto each) { return csv.Has(each); });
  };
  return are({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}) || are({"client", "at_ms"}) || are({kGapColumn});
}

Result<Arrivals> ReadArrivals(CsvReader& csv, const ArrivalChoice& choice) {
  const auto columns = FindColumns(csv, choice);
  if (!columns) return std::unexpected(columns.error());
  if (columns->client && choice.client.empty())
    return Fail(EINVAL, csv.name() + " has several clients", "name one by `client`");
  if (!columns->client && !choice.client.empty())
    return Fail(EINVAL, fmt::format("{} names no clients, so none is {}", csv.name(), QuotedPiece(choice.client)));
  Arrivals arrivals{.kind = Arrivals::Kind::kTimes};
  const auto place = [&](const std::string& client) -> Result<Arrivals*> {
    return client == choice.client ? &arrivals : nullptr;
  };
  if (auto read = ArrivalReader(csv, *columns, choice.cost).Read(place); !read) return std::unexpected(read.error());
  if (arrivals.times.empty()) {
    return Fail(EINVAL, choice.client.empty()
                            ? csv.name() + " has no arrivals"
                            : fmt::format("{} has no client {}", csv.name(), QuotedPiece(choice.client)));
  }
  return arrivals;
}

Result<Workload> ReadArrivalTenants(CsvReader& csv, const RequestCost& cost, std::uint64_t memory) {
  const auto columns = FindColumns(csv, {});
  if (!columns) return std::unexpected(columns.error());
  Workload workload;
  std::unordered_map<std::string, std::size_t> numbers;
  const auto place = [&](const std::string& client) -> Result<Arrivals*> {
    const auto [found, is_new] = numbers.emplace(client, workload.tenants.size());
    if (is_new) {
      if (columns->client && (client.empty() || client.size() > 253 || !IsPrintableUtf8(client)))
        return csv.WrongField(EINVAL, *columns->client, "is no name", "use 1 to 253 printable characters");
      workload.tenants.push_back({.name = columns->client ? client : "requests",
                                  .memory = memory,
                                  .arrivals = {.kind = Arrivals::Kind::kTimes}});
    }
    return &workload.tenants[found->second].arrivals;
  };
  if (auto read = ArrivalReader(csv, *columns, cost).Read(place); !read) return std::unexpected(read.error());
  if (workload.tenants.empty()) return Fail(EINVAL, csv.name() + " has no arrivals");
  for (Tenant& tenant : workload.tenants) {
    tenant.service = MeanService(tenant.arrivals, cost.service);
    workload.length = std::max(workload.length, tenant.arrivals.times.back() + tenant.service);
  }
  return workload;
}

Nanos MeanService(const Arrivals& arrivals, Nanos otherwise) {
  if (arrivals.services.empty()) return otherwise;
  double sum = 0;
  for (const Nanos service : arrivals.services) sum += static_cast<double>(service);
  return std::max<Nanos>(static_cast<Nanos>(sum / static_cast<double>(arrivals.services.size())), 1);
}

}  // namespace tessera::plan
