#include "plan/input/read_workload.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "plan/input/csv_reader.h"
#include "plan/input/mix.h"
#include "plan/input/trace_json.h"
#include "plan/input/use_csv.h"

namespace tessera::plan {
namespace {

double Milliseconds(Nanos time) { return static_cast<double>(time) / kMillisecond; }

// Says what was assumed of requests.
void NoteArrivals(const ReadOptions& options, Workload& workload) {
  const bool tokens = !workload.tenants.front().arrivals.services.empty();
  workload.notes.push_back(
      tokens
          ? fmt::format("the file does not say how long requests take: {} ms for a token of context and {} ms for one "
                        "that is generated are assumed",
                        Milliseconds(options.cost.per_context_token), Milliseconds(options.cost.per_generated_token))
          : fmt::format("the file does not say how long requests take: {} ms are assumed",
                        Milliseconds(options.cost.service)));
  workload.notes.push_back(
      fmt::format("the file does not say how much memory programs need: {} is assumed", FormatSize(options.memory)));
}

Result<Workload> ReadCsv(std::unique_ptr<std::istream> text, const std::string& path, const ReadOptions& options) {
  auto csv = CsvReader::From(std::move(text), path);
  if (!csv) return std::unexpected(csv.error());
  if (IsUse(*csv)) return ReadUse(*csv);
  if (!IsArrivals(*csv)) {
    return Fail(
        EINVAL, path + ":1: these columns are no format that is known",
        fmt::format("known are use: {} or {}; arrivals: {}, {} or {}; a mix ends with .toml, a trace of tessera "
                    "trace with .json",
                    kUseColumns, kOwnUseColumns, kTokenColumns, kClientColumns, kGapColumn));
  }
  auto workload = ReadArrivalTenants(*csv, options.cost, options.memory);
  if (workload) NoteArrivals(options, *workload);
  return workload;
}

}  // namespace

Result<Workload> ReadWorkload(const std::string& path, const ReadOptions& options) {
  auto file = OpenText(path);
  if (!file) return std::unexpected(file.error());
  return ReadWorkloadFrom(*std::move(file), path, options);
}

Result<Workload> ReadWorkloadFrom(std::unique_ptr<std::istream> text, const std::string& path,
                                  const ReadOptions& options) {
  const std::filesystem::path name(path);
  const std::string extension = name.extension();
  if (text->peek() == std::istream::traits_type::eof()) {
    if (text->bad()) return Fail(EIO, "cannot read " + path);
    return Fail(EINVAL, path + " is empty");
  }
  auto workload = extension == ".toml"   ? ReadMix(*text, path)
                  : extension == ".json" ? ReadTraceJson(*text, path, options.interval)
                                         : ReadCsv(std::move(text), path, options);
  if (workload && workload->title.empty()) workload->title = name.filename();
  return workload;
}

}  // namespace tessera::plan
