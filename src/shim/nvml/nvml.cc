// NVML as a program inside a vGPU sees it: the vGPU's memory, its processes, its share of the GPU's time. Everything
// else is the driver's own answer.
#include <string.h>

#include <algorithm>
#include <optional>

#include "base/fork_mutex.h"
#include "shim/load/driver_library.h"
#include "shim/load/real.h"
#include "shim/nvml/nvml_abi.h"
#include "shim/session/session.h"

namespace tessera::shim {

const DriverLibrary driver_library = {
    .file = "libnvidia-ml.so.1",
    .variable = "TESSERA_REAL_NVML",
    .required = {"nvmlInit_v2", "nvmlDeviceGetUUID"},
    .no_driver = nvml::kLibraryNotFound,
};

namespace {

using nvml::Device;

// "GPU-6d1b7b9c-…" to its 16 bytes. MIG and other kinds of UUID are no GPU of ours.
std::optional<wire::Uuid> ParseUuid(const char* text) {
  if (strncmp(text, "GPU-", 4) != 0) return std::nullopt;
  wire::Uuid uuid;
  unsigned digits = 0;
  for (const char* c = text + 4; *c; ++c) {
    if (*c == '-') continue;
    const int value = *c >= '0' && *c <= '9' ? *c - '0' : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10 : -1;
    if (value < 0 || digits == 32) return std::nullopt;
    uuid.bytes[digits / 2] = static_cast<std::uint8_t>(uuid.bytes[digits / 2] << 4 | value);
    ++digits;
  }
  return digits == 32 ? std::optional(uuid) : std::nullopt;
}

// The vGPU of this process on the device, or nothing where it has none: then the driver's answer stands.
std::optional<wire::View> ViewOf(Device device) {
  OnForkInChild([] { Session::Instance().AbandonAfterFork(); });
  Session& session = Session::Instance();
  if (session.Open(true) != cuda::CUDA_SUCCESS || !session.Managed()) return std::nullopt;
  char text[96];
  const auto get_uuid = reinterpret_cast<int (*)(Device, char*, unsigned)>(RealAddress(k_nvmlDeviceGetUUID));
  if (get_uuid(device, text, sizeof text) != nvml::kSuccess) return std::nullopt;
  const auto uuid = ParseUuid(text);
  if (!uuid) return std::nullopt;
  if (session.Lost() && !session.Reconnect([] { return true; })) return std::nullopt;
  wire::View view;
  wire::Header header;
  if (!session.Ask(wire::Make(wire::Query{.gpu = *uuid}), view, header)) return std::nullopt;
  view.processes = std::min<std::uint32_t>(view.processes, std::size(view.process));
  return view;
}

// Writes the vGPU's processes in the driver's manner: *count is room before and number after.
template <typename Info>
int ListProcesses(const wire::View& view, unsigned* count, Info* infos) {
  if (!count) return nvml::kInvalidArgument;
  const unsigned room = *count;
  *count = view.processes;
  if (room < view.processes) return nvml::kInsufficientSize;
  if (view.processes > 0 && !infos) return nvml::kInvalidArgument;
  for (unsigned i = 0; i < view.processes; ++i) {
    infos[i] = {};
    infos[i].pid = view.process[i].pid;
    infos[i].used_memory = view.process[i].memory_bytes;
    if constexpr (requires { infos[i].gpu_instance; }) infos[i].gpu_instance = infos[i].compute_instance = UINT32_MAX;
  }
  return nvml::kSuccess;
}

bool IsOurs(const wire::View& view, unsigned pid) {
  return std::any_of(view.process, view.process + view.processes,
                     [pid](const wire::ProcessView& p) { return static_cast<unsigned>(p.pid) == pid; });
}

}  // namespace
}  // namespace tessera::shim

using namespace tessera;
using namespace tessera::shim;
using nvml::Device;

#define NVML_HOOK extern "C" [[gnu::visibility("default")]] int

NVML_HOOK nvmlDeviceGetMemoryInfo(Device device, nvml::Memory* memory) {
  const int result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
  if (result != nvml::kSuccess) return result;
  if (const auto view = ViewOf(device)) {
    memory->total = std::min<unsigned long long>(memory->total, view->memory_max);
    memory->used = std::min<unsigned long long>(memory->total, view->memory_used);
    memory->free = memory->total - memory->used;
  }
  return result;
}

NVML_HOOK nvmlDeviceGetMemoryInfo_v2(Device device, nvml::MemoryV2* memory) {
  const int result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  if (result != nvml::kSuccess) return result;
  if (const auto view = ViewOf(device)) {
    // The driver's own memory is no part of the vGPU.
    memory->reserved = 0;
    memory->total = std::min<unsigned long long>(memory->total, view->memory_max);
    memory->used = std::min<unsigned long long>(memory->total, view->memory_used);
    memory->free = memory->total - memory->used;
  }
  return result;
}

NVML_HOOK nvmlDeviceGetUtilizationRates(Device device, nvml::Utilization* rates) {
  const int result = REAL(nvmlDeviceGetUtilizationRates)(device, rates);
  if (result != nvml::kSuccess) return result;
  if (const auto view = ViewOf(device)) rates->gpu = view->compute_pct;
  return result;
}

#define RUNNING_PROCESSES(name, Info)                                                \
  NVML_HOOK name(Device device, unsigned* count, Info* infos) {                      \
    if (const auto view = ViewOf(device)) return ListProcesses(*view, count, infos); \
    return REAL(name)(device, count, infos);                                         \
  }
RUNNING_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvml::ProcessInfoV1)
RUNNING_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvml::ProcessInfo)
RUNNING_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvml::ProcessInfo)

// The vGPU's processes are listed once, as compute processes.
#define GRAPHICS_PROCESSES(name, Info)                            \
  NVML_HOOK name(Device device, unsigned* count, Info* infos) {   \
    if (!ViewOf(device)) return REAL(name)(device, count, infos); \
    if (!count) return nvml::kInvalidArgument;                    \
    *count = 0;                                                   \
    return nvml::kSuccess;                                        \
  }
GRAPHICS_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvml::ProcessInfoV1)
GRAPHICS_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvml::ProcessInfo)
GRAPHICS_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvml::ProcessInfo)

NVML_HOOK nvmlDeviceGetRunningProcessDetailList(Device device, nvml::ProcessDetailList* list) {
  const int result = REAL(nvmlDeviceGetRunningProcessDetailList)(device, list);
  if (result != nvml::kSuccess || !list || !list->processes) return result;
  if (const auto view = ViewOf(device)) {
    const auto end = std::remove_if(list->processes, list->processes + list->count,
                                    [&](const nvml::ProcessDetail& p) { return !IsOurs(*view, p.pid); });
    list->count = static_cast<unsigned>(end - list->processes);
  }
  return result;
}

NVML_HOOK nvmlDeviceGetProcessUtilization(Device device, nvml::ProcessUtilization* samples, unsigned* count,
                                          unsigned long long since) {
  const int result = REAL(nvmlDeviceGetProcessUtilization)(device, samples, count, since);
  if (result != nvml::kSuccess || !samples || !count) return result;
  if (const auto view = ViewOf(device)) {
    const auto end = std::remove_if(samples, samples + *count,
                                    [&](const nvml::ProcessUtilization& s) { return !IsOurs(*view, s.pid); });
    *count = static_cast<unsigned>(end - samples);
  }
  return result;
}

extern "C" [[gnu::visibility("default")]] const char tessera_shim_version[] = TESSERA_VERSION;
