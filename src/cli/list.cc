#include "cli/list.h"

#include "base/size.h"
#include "cli/api_client.h"
#include "cli/json_fields.h"
#include "cli/output.h"

namespace tessera::cli {
namespace {

std::string Count(const Json& object, const char* name) { return std::to_string(IntegerField(object, name)); }

std::string Size(const Json& object, const char* name) { return FormatSize(IntegerField(object, name)); }

std::string Percent(const Json& object, const char* name) { return FormatPercent(NumberField(object, name)); }

Result<int> List(const Common& common, const std::string& path, const char* array, Table (*table)(const Json&)) {
  const auto answer = ApiClient(common.RunDirectory()).Get(path);
  if (!answer) return std::unexpected(answer.error());
  if (common.json) {
    PrintJson(*answer);
  } else {
    Print(table(Field(*answer, array)));
  }
  return 0;
}

}  // namespace

Table ProcessTable(const Json& processes) {
  Table table({{"PID", Align::kRight},
               {"PROGRAM"},
               {"VGPU"},
               {"GPU", Align::kRight},
               {"STATE"},
               {"MEMORY", Align::kRight},
               {"GPU TIME", Align::kRight},
               {"WAITED", Align::kRight},
               {"OOM", Align::kRight}});
  for (const Json& process : processes) {
    table.Add({Count(process, "pid"), TextField(process, "name"), TextField(process, "vgpu"), Count(process, "gpu"),
               TextField(process, "state"), Size(process, "memory_bytes"),
               FormatMicroseconds(IntegerField(process, "compute_busy_us")),
               FormatMicroseconds(IntegerField(process, "gate_wait_us")), Count(process, "oom_errors")});
  }
  return table;
}

Table GpuTable(const Json& gpus) {
  Table table({{"GPU", Align::kRight},
               {"NAME"},
               {"MEMORY", Align::kRight},
               {"USED", Align::kRight},
               {"PROMISED", Align::kRight},
               {"BUSY %", Align::kRight},
               {"REQUESTED %", Align::kRight},
               {"VGPUS", Align::kRight},
               {"PROCESSES", Align::kRight},
               {"UUID"}});
  for (const Json& gpu : gpus) {
    table.Add({Count(gpu, "index"), TextField(gpu, "name"), Size(gpu, "memory_total_bytes"),
               Size(gpu, "memory_used_bytes"), Size(gpu, "memory_promised_bytes"), Percent(gpu, "compute_busy_pct"),
               Percent(gpu, "compute_requested_pct"), Count(gpu, "vgpus"), Count(gpu, "processes"),
               TextField(gpu, "uuid")});
  }
  return table;
}

Result<int> ListProcesses(const Common& common) { return List(common, "/v1/processes", "processes", ProcessTable); }

Result<int> ListGpus(const Common& common) { return List(common, "/v1/gpus", "gpus", GpuTable); }

}  // namespace tessera::cli
