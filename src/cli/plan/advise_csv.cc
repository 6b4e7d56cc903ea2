#include <algorithm>
#include <limits>
#include <optional>

#include "base/size.h"
#include "base/text/counted.h"
#include "cli/plan/advise_sources.h"
#include "plan/input/csv_reader.h"

namespace tessera::cli {
namespace {

using plan::CsvReader;

// Columns that a file may lack.
std::optional<std::size_t> MaybeColumn(const CsvReader& file, std::string_view name) {
  const auto column = file.Column(name);
  return column ? std::optional(*column) : std::nullopt;
}

struct MeteredColumns {
  std::size_t second = 0, node = 0, gpu = 0, vgpu = 0, duty = 0, memory = 0, request = 0, limit = 0, memory_request = 0,
              memory_limit = 0;
  std::optional<std::size_t> waited, throttled, violated, type, gpu_memory, space, sm;
};

Result<MeteredColumns> FindColumns(const CsvReader& file) {
  MeteredColumns found;
  const std::pair<const char*, std::size_t*> needed[] = {
      {"second", &found.second},
      {"node", &found.node},
      {"gpu", &found.gpu},
      {"vgpu", &found.vgpu},
      {"duty_pct", &found.duty},
      {"memory_mib", &found.memory},
      {"request_pct", &found.request},
      {"limit_pct", &found.limit},
      {"memory_request_mib", &found.memory_request},
      {"memory_limit_mib", &found.memory_limit},
  };
  for (const auto& [name, column] : needed) {
    const auto at = file.Column(name);
    if (!at) return std::unexpected(at.error());
    *column = *at;
  }
  found.waited = MaybeColumn(file, "waited_pct");
  found.throttled = MaybeColumn(file, "throttled_pct");
  found.violated = MaybeColumn(file, "violated");
  found.type = MaybeColumn(file, "gpu_type");
  found.gpu_memory = MaybeColumn(file, "gpu_memory_mib");
  found.space = MaybeColumn(file, "space");
  found.sm = MaybeColumn(file, "sm_pct");
  return found;
}

// Reads the numbers of a row one after the other; the first error is kept.
class RowNumbers {
 public:
  explicit RowNumbers(const CsvReader& file) : file_(file) {}

  double Get(std::size_t column, double most) {
    const auto number = file_.Number(column, 0, most);
    if (!number && !error_) error_ = number.error();
    return number.value_or(0);
  }
  double Pct(std::size_t column) { return Get(column, 100); }
  // An empty field, and a missing column, is `otherwise`.
  double PctOr(const std::optional<std::size_t>& column, double otherwise) {
    return column && !file_.Field(*column).empty() ? Pct(*column) : otherwise;
  }
  std::uint64_t MiB(std::size_t column) {
    return static_cast<std::uint64_t>(Get(column, 1e9) * static_cast<double>(kMiB));
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const CsvReader& file_;
  std::optional<Error> error_;
};

Result<void> TakeRow(const CsvReader& file, const MeteredColumns& at, std::size_t moment, SeenFleetBuilder& builder) {
  if (file.Field(at.vgpu).empty()) return file.Wrong(EINVAL, "vgpu: the name is missing");
  RowNumbers numbers(file);
  const std::size_t gpu = builder.GpuIndex(file.Field(at.node), file.Field(at.gpu));
  const std::size_t index = builder.VgpuIndex(file.Field(at.node), file.Field(at.vgpu));
  if (at.type) builder.Gpu(gpu).type = file.Field(*at.type);
  if (at.gpu_memory && !file.Field(*at.gpu_memory).empty()) builder.Gpu(gpu).memory = numbers.MiB(*at.gpu_memory);
  sched::MeteredVgpu& vgpu = builder.Vgpu(index);
  vgpu.gpu = gpu;
  vgpu.request_pct = numbers.Pct(at.request);
  vgpu.limit_pct = numbers.Pct(at.limit);
  vgpu.memory_request = numbers.MiB(at.memory_request);
  vgpu.memory_limit = numbers.MiB(at.memory_limit);
  if (at.space) vgpu.space = file.Field(*at.space);
  vgpu.sm_pct = numbers.PctOr(at.sm, 100);
  const bool told_of_goal = at.violated && !file.Field(*at.violated).empty();
  vgpu.goal = vgpu.goal || told_of_goal;
  const double limit_pct = vgpu.limit_pct;
  const auto sample = builder.Sample(index, moment);
  if (!sample) return std::unexpected(sample.error());
  sched::UsedSample& used = **sample;
  if (used.there) return file.Wrong(EINVAL, "a second row for vGPU " + file.Field(at.vgpu) + " and this second");
  used = {.there = true,
          .duty = numbers.Pct(at.duty) / 100,
          .waited = numbers.PctOr(at.waited, 0) / 100,
          .memory = numbers.MiB(at.memory),
          .violated = at.violated && told_of_goal && numbers.Get(*at.violated, std::numeric_limits<double>::max()) > 0};
  // A vGPU that runs as much as its limit permits waits for that, as far as one can see.
  const bool at_limit = 100 * used.duty >= 0.9 * limit_pct;
  used.throttled = std::min(used.waited, at.throttled ? numbers.PctOr(at.throttled, 0) / 100
                                         : at_limit   ? used.waited
                                                      : 0);
  if (numbers.error()) return std::unexpected(*numbers.error());
  return {};
}

}  // namespace

Result<SeenFleet> ReadMeteredCsv(const std::string& path) {
  auto file = CsvReader::Open(path);
  if (!file) return std::unexpected(file.error());
  const auto columns = FindColumns(*file);
  if (!columns) return std::unexpected(columns.error());
  SeenFleetBuilder builder;
  double last = -1;
  for (;;) {
    const auto more = file->Next();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    const auto second = file->Number(columns->second);
    if (!second) return std::unexpected(second.error());
    if (*second < last) return file->Wrong(EINVAL, "second: the time goes back", "sort the rows by second");
    const std::size_t moment = *second == last ? builder.moments() - 1 : builder.moments();
    last = *second;
    if (auto taken = TakeRow(*file, *columns, moment, builder); !taken) return std::unexpected(taken.error());
  }
  const std::size_t moments = builder.moments();
  return builder.Finish(Counted(moments, "moment") + " of " + path);
}

}  // namespace tessera::cli
