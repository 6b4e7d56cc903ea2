#include "cli/commands/list.h"

#include <algorithm>
#include <vector>

#include "cli/commands/listing.h"
#include "cli/terminal/printable.h"

namespace tessera::cli {
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

// Whether the process was neither started through Tessera nor adopted. A daemon that does not say lists only its own.
bool Unmanaged(const Json& process) {
  const Json& managed = Field(process, "managed");
  return managed.is_boolean() && !managed.get<bool>() && !Field(process, "vgpu").is_string();
}

std::string ProcessState(const Json& process) {
  const std::string state = State(process);
  return state != "frozen" && state != "failed" && Unmanaged(process) ? "unmanaged" : state;
}

bool AnySwapped(const Json& processes) {
  return std::ranges::any_of(processes,
                             [](const Json& process) { return IntegerField(process, "memory_swapped_bytes") > 0; });
}

// Managed processes first, each kind in the daemon's order.
std::vector<Json> InOrder(const Json& processes) {
  std::vector<Json> ordered;
  for (const bool unmanaged : {false, true}) {
    for (const Json& process : processes) {
      if (Unmanaged(process) == unmanaged) ordered.push_back(process);
    }
  }
  return ordered;
}

// Host memory that is ready and holds nothing yet, and how much that is to be.
std::string PreparedNote(const Json& swap) {
  const std::uint64_t used = IntegerField(swap, "pool_used_bytes");
  const std::uint64_t ready = std::max(IntegerField(swap, "pool_bytes"), used) - used;
  const std::uint64_t wanted = std::max(IntegerField(swap, "pool_goal_bytes"), used) - used;
  if (std::max(ready, wanted) == 0) return "";
  return ", " + (ready < wanted ? FormatSize(ready) + " of " : "") + FormatSize(std::max(ready, wanted)) + " prepared";
}

std::string FileNote(const Json& swap) {
  if (IntegerField(swap, "file_bytes") == 0) return "";
  const std::string error = TextField(swap, "file_error");
  return ", " + Size(swap, "file_used_bytes") + " of " + Size(swap, "file_bytes") + " in the file" +
         (error.empty() ? "" : " (no more writes: " + error + ")");
}

// The location of memory that does not fit on the GPU, and the policy that applies.
std::string SwapNotes(const Json& gpus) {
  std::string text;
  for (const Json& gpu : gpus) {
    const Json& swap = Field(gpu, "swap");
    if (IntegerField(swap, "max_bytes") == 0) continue;
    const std::string decision = TextField(swap, "decision");
    text += "  GPU " + Count(gpu, "index") + ": " + Size(swap, "pool_used_bytes") + " of at most " +
            Size(swap, "max_bytes") + " in use" + PreparedNote(swap) + FileNote(swap) +
            (decision.empty() ? "" : "; " + decision) + "\n";
  }
  return text.empty() ? "" : "\nHost memory for swapping:\n" + text;
}

// GPUs that have failed, and errors of others.
std::string HealthNotes(const Json& gpus) {
  std::string failed, errors;
  for (const Json& gpu : gpus) {
    const Json& health = Field(gpu, "health");
    const std::string last = TextField(health, "last");
    const std::string name = "  GPU " + Count(gpu, "index") + ": ";
    if (client::BoolField(health, "failed")) {
      failed += name + TextField(health, "why") + "\n";
    } else if (!last.empty()) {
      const std::uint64_t xids = IntegerField(health, "xid_errors"), ecc = IntegerField(health, "ecc_errors");
      errors +=
          name + std::to_string(xids) + " Xid and " + std::to_string(ecc) + " ECC errors; the last: " + last + "\n";
    }
  }
  if (!failed.empty()) failed = "\nFailed; reset the GPU, then restart the daemon:\n" + failed;
  return failed + (errors.empty() ? "" : "\nErrors that the driver reported:\n" + errors);
}

// GPUs that drain, and what is still on them.
std::string DrainNotes(const Json& gpus) {
  std::string text;
  for (const Json& gpu : gpus) {
    if (!client::BoolField(gpu, "draining")) continue;
    const Json& drain = Field(gpu, "drain");
    const std::string name = "  GPU " + Count(gpu, "index") + ": ";
    const std::string moving = client::TextsField(drain, "moving");
    const Json& staying = Field(drain, "staying");
    if (!moving.empty()) text += name + "on their way: " + Printable(moving) + "\n";
    for (const Json& stay : staying)
      text += name + "vGPU " + TextField(stay, "vgpu") + " stays: " + Printable(TextField(stay, "why")) + "\n";
    if (moving.empty() && staying.empty()) text += name + "it is empty\n";
  }
  return text.empty() ? "" : "\nDraining, so they take no newcomers until tessera gpu undrain:\n" + text;
}

}  // namespace

Table ProcessTable(const Json& processes) {
  const bool swaps = AnySwapped(processes);
  std::vector<Column> columns = {{"PID", Align::kRight},
                                 {"PROGRAM", Align::kLeft, /*shortens=*/true},
                                 {"VGPU"},
                                 {"GPU", Align::kRight},
                                 {"STATE"},
                                 {"MEMORY", Align::kRight},
                                 {"GPU TIME", Align::kRight},
                                 {"WAITED", Align::kRight},
                                 {"OOM", Align::kRight}};
  constexpr std::ptrdiff_t kAfterMemory = 6;
  if (swaps) columns.insert(columns.begin() + kAfterMemory, {"SWAPPED", Align::kRight});
  Table table(columns);
  for (const Json& process : InOrder(processes)) {
    std::vector<std::string> cells = {Count(process, "pid"),
                                      TextField(process, "name"),
                                      TextField(process, "vgpu"),
                                      Count(process, "gpu"),
                                      ProcessState(process),
                                      Size(process, "memory_bytes"),
                                      Time(process, "compute_busy_us"),
                                      Time(process, "compute_waited_us"),
                                      Count(process, "oom_errors")};
    if (swaps) cells.insert(cells.begin() + kAfterMemory, Size(process, "memory_swapped_bytes"));
    table.Add(std::move(cells));
  }
  return table;
}

namespace {

std::string SlowNotes(const Json& processes) {
  std::string text;
  for (const Json& process : InOrder(processes)) {
    if (!Field(process, "memory_on_host_told_us").is_number()) continue;
    text += "  " + Count(process, "pid") + " (" + Printable(TextField(process, "name")) +
            "): " + Size(process, "memory_used_on_host_bytes") + " of what it uses is in host memory, for " +
            Time(process, "memory_on_host_told_us") + " of its work\n";
  }
  return text.empty() ? "" : "\nSlow, because they work on host memory:\n" + text;
}

std::string StrandedNotes(const Json& processes) {
  std::string text;
  for (const Json& process : InOrder(processes)) {
    const Json& stranded = Field(process, "memory_stranded_bytes");
    if (!stranded.is_number() || stranded == 0) continue;
    text += "  " + Count(process, "pid") + " (" + Printable(TextField(process, "name")) +
            "): " + Size(process, "memory_stranded_bytes") + "\n";
  }
  return text.empty() ? "" : "\nIn host memory until they free it or end, because no mover has it:\n" + text;
}

}  // namespace

std::string ProcessNotes(const Json& processes) { return SlowNotes(processes) + StrandedNotes(processes); }

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
               {"CONTROL"},
               {"UUID"}});
  for (const Json& gpu : gpus) {
    table.Add({Count(gpu, "index"), TextField(gpu, "name"), Size(gpu, "memory_total_bytes"),
               Size(gpu, "memory_used_bytes"), Size(gpu, "memory_promised_bytes"), Percent(gpu, "compute_busy_pct"),
               Percent(gpu, "compute_requested_pct"), Count(gpu, "vgpus"), Count(gpu, "processes"),
               TextField(Field(gpu, "control"), "by"), TextField(gpu, "uuid")});
  }
  return table;
}

std::string GpuNotes(const Json& gpus) {
  std::string text;
  for (const Json& gpu : gpus) {
    const Json& control = Field(gpu, "control");
    const std::string why = TextField(control, "why");
    if (TextField(control, "by") == "gate" && !why.empty()) text += "  GPU " + Count(gpu, "index") + ": " + why + "\n";
  }
  if (!text.empty()) text = "\nGates divide the time, only between kernels, because channels are not steered:\n" + text;
  return HealthNotes(gpus) + DrainNotes(gpus) + text + SwapNotes(gpus);
}

Result<int> ListProcesses(const Common& common) {
  return List(common, "/v1/processes", "processes", [](const Json& processes) {
    Print(ProcessTable(processes));
    Print(ProcessNotes(processes));
  });
}

Result<int> ListGpus(const Common& common) {
  return List(common, "/v1/gpus", "gpus", [](const Json& gpus) {
    Print(GpuTable(gpus));
    Print(GpuNotes(gpus));
  });
}

}  // namespace tessera::cli
