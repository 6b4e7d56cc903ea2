#pragma once

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/edit_distance.h"
#include "base/result.h"
#include "plan/input/arrival_csv.h"
#include "plan/input/csv_reader.h"
#include "plan/input/mix.h"
#include "plan/workload/tenant.h"

namespace tessera::plan {

// A [[tenant]] of a mix while its keys are read, in any order.
struct MixTenant {
  Tenant tenant;
  std::uint64_t count = 1;
  std::string arrivals_file;  // as it is written; empty: none
  ArrivalChoice arrivals_choice;
  bool has_sms = false;
  bool has_speed = false;
};

// A key, and how its value is taken. Errors have no place yet: SetKeys puts it before them.
template <typename Into>
struct MixKey {
  const char* name;
  std::function<Result<void>(const toml::node&, Into&)> set;
};

// Keys of [[tenant]].
const std::vector<MixKey<MixTenant>>& TenantKeys();

// Sets what `table` says. Errors begin with "SOURCE:LINE: ", or with nothing if `source` is empty; of an unknown key
// they name the nearest known one.
template <typename Into>
Result<void> SetKeys(const toml::table& table, const std::vector<MixKey<Into>>& keys, const std::string& source,
                     Into& into) {
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    const std::string place = source.empty() ? "" : fmt::format("{}:{}: ", source, key.source().begin.line);
    const auto found = std::ranges::find(keys, name, &MixKey<Into>::name);
    if (found == keys.end()) {
      const auto distance = [&](const MixKey<Into>& each) { return EditDistance(name.substr(0, 64), each.name); };
      return Fail(EINVAL, place + "unknown key " + QuotedPiece(name),
                  fmt::format("did you mean {}?", std::ranges::min_element(keys, {}, distance)->name));
    }
    if (auto set = found->set(node, into); !set)
      return Fail(set.error().code, place + Printable(set.error().message, 300), set.error().hint);
  }
  return {};
}

// "KEY must be WHAT".
std::unexpected<Error> MustBe(std::string_view key, std::string_view what);
// A text such as "12ms", at least this long and at most a year.
Result<Nanos> DurationOf(const toml::node& node, std::string_view key, Nanos least);

}  // namespace tessera::plan
