#include "plan/input/mix.h"

#include <filesystem>
#include <set>
#include <utility>

#include "plan/input/mix_keys.h"

namespace tessera::plan {
namespace {

// Reads one mix.
class MixReader {
 public:
  explicit MixReader(const std::string& source) : source_(source) {}

  Result<Workload> Read(const toml::table& table) {
    const std::vector<MixKey<Workload>> keys = {
        {"title",
         [](const toml::node& node, Workload& into) -> Result<void> {
           const auto text = node.value<std::string>();
           if (!text) return MustBe("title", "a text");
           into.title = *text;
           return {};
         }},
        {"length",
         [](const toml::node& node, Workload& into) -> Result<void> {
           const auto length = DurationOf(node, "length", kMillisecond);
           if (!length) return std::unexpected(length.error());
           into.length = *length;
           return {};
         }},
        {"tenant", [](const toml::node&, Workload&) -> Result<void> { return {}; }},
    };
    if (auto set = SetKeys(table, keys, source_, workload_); !set) return std::unexpected(set.error());
    const toml::node* tenants = table.get("tenant");
    if (tenants == nullptr) return Fail(EINVAL, source_ + " has no tenants", "write a section [[tenant]] for each");
    if (!tenants->is_array_of_tables())
      return Wrong(*tenants, EINVAL, "tenant must be sections", "write [[tenant]] above each");
    for (const toml::node& tenant : *tenants->as_array()) {
      if (auto read = ReadTenant(*tenant.as_table()); !read) return std::unexpected(read.error());
    }
    return std::move(workload_);
  }

 private:
  std::unexpected<Error> Wrong(const toml::node& node, int code, const std::string& message,
                               std::string hint = {}) const {
    return Fail(code, fmt::format("{}:{}: {}", source_, node.source().begin.line, message), std::move(hint));
  }

  Result<void> ReadTenant(const toml::table& table) {
    MixTenant mixed;
    if (auto set = SetKeys(table, TenantKeys(), source_, mixed); !set) return set;
    Tenant& tenant = mixed.tenant;
    if (tenant.name.empty()) return Wrong(table, EINVAL, "a tenant has no name", "write name = \"...\"");
    const std::string who = "tenant " + QuotedPiece(tenant.name) + " ";
    if (!table.contains("memory")) return Wrong(table, EINVAL, who + "has no memory", "write memory = \"20G\"");
    if (tenant.memory_request > tenant.memory)
      return Wrong(table, EINVAL, who + "is promised more memory than it allocates", "lower memory_request");
    if (mixed.has_sms && mixed.has_speed) return Wrong(table, EINVAL, who + "has both sms and speed", "write one");
    if (auto read = ReadItsArrivals(table, who, mixed); !read) return read;
    if (auto set = SetService(table, who, tenant); !set) return set;
    return AddCopies(table, mixed);
  }

  Result<void> ReadItsArrivals(const toml::table& table, const std::string& who, MixTenant& mixed) {
    if (mixed.arrivals_file.empty()) return {};
    const auto path = std::filesystem::path(source_).parent_path() / mixed.arrivals_file;
    auto csv = CsvReader::Open(path.string());
    if (!csv) return Wrong(*table.get("arrivals"), csv.error().code, csv.error().message, csv.error().hint);
    auto arrivals = ReadArrivals(*csv, mixed.arrivals_choice);
    if (!arrivals) return std::unexpected(arrivals.error());
    const RequestCost& cost = mixed.arrivals_choice.cost;
    if (arrivals->services.empty() && (cost.per_context_token > 0 || cost.per_generated_token > 0))
      return Wrong(table, EINVAL, who + "has times for tokens, and its file counts none", "write service instead");
    mixed.tenant.arrivals = *std::move(arrivals);
    return {};
  }

  Result<void> SetService(const toml::table& table, const std::string& who, Tenant& tenant) {
    if (!tenant.arrivals.services.empty()) {
      if (tenant.service > 0) return Wrong(table, EINVAL, who + "has a service and times for tokens", "write one");
      tenant.service = MeanService(tenant.arrivals, 0);
    }
    if (tenant.service == 0 && tenant.bursts_alone == 0)
      return Wrong(table, EINVAL, who + "does not say how it works",
                   "write service = \"12ms\" (GPU time of a burst), rate_alone (bursts a second) or both");
    if (tenant.service == 0) tenant.service = static_cast<Nanos>(static_cast<double>(kSecond) / tenant.bursts_alone);
    // A little more is what rounding does to figures that are measured.
    if (tenant.bursts_alone * static_cast<double>(tenant.service) > 1.001 * static_cast<double>(kSecond))
      return Wrong(table, EINVAL, who + "cannot have so many bursts a second alone: each takes its service",
                   "lower rate_alone or service");
    return {};
  }

  Result<void> AddCopies(const toml::table& table, const MixTenant& mixed) {
    arrivals_ += mixed.count * mixed.tenant.arrivals.times.size();
    if (workload_.tenants.size() + mixed.count > kMostTenants)
      return Wrong(table, ERANGE, fmt::format("more than {} tenants, copies counted", kMostTenants));
    if (arrivals_ > kMostArrivals)
      return Wrong(table, ERANGE, fmt::format("more than {} arrivals, copies counted", kMostArrivals));
    for (std::uint64_t copy = 1; copy <= mixed.count; ++copy) {
      Tenant tenant = mixed.tenant;
      if (mixed.count > 1) tenant.name += fmt::format("-{}", copy);
      if (!names_.insert(tenant.name).second)
        return Wrong(table, EINVAL, "two tenants have the name " + QuotedPiece(tenant.name), "rename one");
      workload_.tenants.push_back(std::move(tenant));
    }
    return {};
  }

  const std::string& source_;
  Workload workload_;
  std::set<std::string> names_;
  std::size_t arrivals_ = 0;  // from files, of all tenants
};

}  // namespace

Result<Workload> ReadMix(std::istream& text, const std::string& source) {
  try {
    const toml::table table = toml::parse(text, source);
    return MixReader(source).Read(table);
  } catch (const toml::parse_error& error) {
    return Fail(EINVAL,
                fmt::format("{}:{}: {}", source, error.source().begin.line, Printable(error.description(), 300)));
  }
}

}  // namespace tessera::plan
