#include "plan/cluster/fleet_csv.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "plan/input/csv_reader.h"

namespace tessera::plan {
namespace {

using FleetColumns = std::vector<std::string_view>;

constexpr double kMost = std::numeric_limits<std::int32_t>::max();

// Looks for columns with a typing error.
Result<void> OnlyColumns(const CsvReader& csv, const FleetColumns& known) {
  for (const std::string& column : csv.columns()) {
    if (std::ranges::find(known, column) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
    return csv.Wrong(EINVAL, "unknown column " + QuotedPiece(column), "columns are " + names);
  }
  return {};
}

Result<std::int32_t> WholeNumber(const CsvReader& csv, std::size_t column, double most = kMost) {
  const auto number = csv.Number(column, 0, most);
  if (!number) return std::unexpected(number.error());
  if (*number != std::floor(*number))
    return csv.Wrong(EINVAL, csv.columns()[column] + ": " + QuotedPiece(csv.Field(column)) + " is not a whole number");
  return static_cast<std::int32_t>(*number);
}

// FleetNames of rows, each of which may be there once.
class FleetNames {
 public:
  Result<void> Add(const CsvReader& csv, std::size_t column) {
    const std::string& name = csv.Field(column);
    if (name.empty()) return csv.Wrong(EINVAL, csv.columns()[column] + " is empty");
    if (!seen_.insert(name).second) return csv.Wrong(EINVAL, QuotedPiece(name) + " is there twice");
    return {};
  }

 private:
  std::unordered_set<std::string> seen_;
};

// The type's number; a new one if it is new.
Result<std::uint8_t> ModelOf(const CsvReader& csv, std::size_t column, std::vector<std::string>& models) {
  const std::string& name = csv.Field(column);
  if (name.empty()) return csv.Wrong(EINVAL, "model is empty", "a node with GPUs needs their type");
  auto found = std::ranges::find(models, name);
  if (found == models.end()) {
    if (models.size() == sched::kMostGpuModels) return csv.Wrong(E2BIG, "more than 64 types of GPU");
    models.push_back(name);
    found = std::prev(models.end());
  }
  return static_cast<std::uint8_t>(found - models.begin());
}

// Of the types that are named, those that a node has.
Result<sched::GpuModels> ModelsOf(const CsvReader& csv, std::size_t column, const std::vector<std::string>& models) {
  const std::string_view text = csv.Field(column);
  sched::GpuModels found = 0;
  bool any = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('|', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty()) continue;
    any = true;
    const auto model = std::ranges::find(models, name);
    if (model != models.end()) found |= sched::GpuModels{1} << (model - models.begin());
  }
  if (any && found == 0) return csv.Wrong(EINVAL, "gpu_spec: no node has a GPU of type " + QuotedPiece(text));
  return found;
}

Result<void> CheckDemand(const CsvReader& csv, const sched::Demand& demand) {
  if (demand.gpus == 0 && demand.gpu_milli > 0)
    return csv.Wrong(EINVAL, "gpu_milli is " + std::to_string(demand.gpu_milli) + " where num_gpu is 0");
  if (demand.gpus > 0 && demand.gpu_milli == 0)
    return csv.Wrong(EINVAL, "gpu_milli is 0 where num_gpu is " + std::to_string(demand.gpus));
  if (demand.gpus > 1 && demand.gpu_milli < sched::kGpuMilli)
    return csv.Wrong(
        EINVAL, "gpu_milli is " + std::to_string(demand.gpu_milli) + " where num_gpu is " + std::to_string(demand.gpus),
        "a pod has a part of one GPU, or whole ones: gpu_milli must be 1000");
  return {};
}

}  // namespace

std::int64_t FleetNodes::gpus() const {
  std::int64_t all = 0;
  for (const sched::NodeRoom& room : rooms) all += room.gpus;
  return all;
}

Result<FleetNodes> ReadFleetNodes(const std::string& path) {
  auto csv = CsvReader::Open(path);
  if (!csv) return std::unexpected(csv.error());
  const FleetColumns known = {"sn", "cpu_milli", "memory_mib", "gpu", "model"};
  if (const auto ok = OnlyColumns(*csv, known); !ok) return std::unexpected(ok.error());
  std::vector<std::size_t> at;
  for (const std::string_view name : known) {
    const auto column = csv->Column(name);
    if (!column) return std::unexpected(column.error());
    at.push_back(*column);
  }
  FleetNodes nodes;
  FleetNames names;
  for (;;) {
    const auto more = csv->Next();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    if (const auto ok = names.Add(*csv, at[0]); !ok) return std::unexpected(ok.error());
    sched::NodeRoom room;
    const auto cpu = WholeNumber(*csv, at[1]);
    const auto memory = WholeNumber(*csv, at[2]);
    const auto gpus = WholeNumber(*csv, at[3], sched::kMostGpus);
    for (const auto* const number : {&cpu, &memory, &gpus}) {
      if (!*number) return std::unexpected(number->error());
    }
    room.cpu = *cpu;
    room.memory = *memory;
    room.gpus = static_cast<std::uint8_t>(*gpus);
    std::fill_n(room.gpu_milli.begin(), *gpus, static_cast<std::int16_t>(sched::kGpuMilli));
    if (*gpus > 0) {
      const auto model = ModelOf(*csv, at[4], nodes.models);
      if (!model) return std::unexpected(model.error());
      room.model = *model;
    }
    nodes.rooms.push_back(room);
  }
  return nodes;
}

Result<std::vector<sched::Demand>> ReadFleetPods(const std::string& path, const FleetNodes& nodes) {
  auto csv = CsvReader::Open(path);
  if (!csv) return std::unexpected(csv.error());
  const FleetColumns known = {"name", "cpu_milli", "memory_mib",    "num_gpu",       "gpu_milli",     "gpu_spec",
                              "qos",  "pod_phase", "creation_time", "deletion_time", "scheduled_time"};
  constexpr std::size_t kNeeded = 5;
  if (const auto ok = OnlyColumns(*csv, known); !ok) return std::unexpected(ok.error());
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < kNeeded; ++i) {
    const auto column = csv->Column(known[i]);
    if (!column) return std::unexpected(column.error());
    at.push_back(*column);
  }
  const auto spec = csv->Column("gpu_spec");
  std::vector<sched::Demand> pods;
  FleetNames names;
  for (;;) {
    const auto more = csv->Next();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    if (const auto ok = names.Add(*csv, at[0]); !ok) return std::unexpected(ok.error());
    const auto cpu = WholeNumber(*csv, at[1]);
    const auto memory = WholeNumber(*csv, at[2]);
    const auto gpus = WholeNumber(*csv, at[3], sched::kMostGpus);
    const auto milli = WholeNumber(*csv, at[4], sched::kGpuMilli);
    for (const auto* const number : {&cpu, &memory, &gpus, &milli}) {
      if (!*number) return std::unexpected(number->error());
    }
    sched::Demand demand = {.cpu = *cpu, .memory = *memory, .gpus = *gpus, .gpu_milli = *milli};
    if (const auto ok = CheckDemand(*csv, demand); !ok) return std::unexpected(ok.error());
    if (spec && demand.gpus > 0) {
      const auto models = ModelsOf(*csv, *spec, nodes.models);
      if (!models) return std::unexpected(models.error());
      demand.models = *models;
    }
    pods.push_back(demand);
  }
  return pods;
}

}  // namespace tessera::plan
