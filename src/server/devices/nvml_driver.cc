// The machine's NVIDIA GPUs as NVML tells of them. The ABI is declared here as NVIDIA documents it (NVML API Reference,
// "Device Queries" and "Initialization and Cleanup", release 580): no header of theirs is needed to build.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "base/processor/processor.h"
#include "base/size.h"
#include "channel/control/nvidia_control.h"
#include "server/devices/gpu_driver.h"
#include "server/devices/ld_cache.h"
#include "server/devices/nvlink_groups.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

using nvmlReturn_t = int;
constexpr nvmlReturn_t NVML_SUCCESS = 0;
constexpr nvmlReturn_t NVML_ERROR_NOT_SUPPORTED = 3;
constexpr nvmlReturn_t NVML_ERROR_NOT_FOUND = 6;
constexpr nvmlReturn_t NVML_ERROR_INSUFFICIENT_SIZE = 7;
constexpr nvmlReturn_t NVML_ERROR_TIMEOUT = 10;
constexpr nvmlReturn_t NVML_ERROR_GPU_IS_LOST = 15;
using nvmlDevice_t = struct nvmlDevice_st*;
using nvmlEventSet_t = struct nvmlEventSet_st*;
// "NVML API Reference", "Event Types".
constexpr unsigned long long nvmlEventTypeDoubleBitEccError = 0x2, nvmlEventTypeXidCriticalError = 0x8;

struct nvmlMemory_v2_t {
  unsigned version = sizeof(nvmlMemory_v2_t) | 2u << 24;
  unsigned long long total, reserved, free, used;
};
struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;  // all ones: not known
  unsigned gpuInstanceId, computeInstanceId;
};
struct nvmlProcessUtilizationSample_t {
  unsigned pid;
  unsigned long long timeStamp;                // of CLOCK_REALTIME, microseconds
  unsigned smUtil, memUtil, encUtil, decUtil;  // percent
};
struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;  // of an Xid: its number
  unsigned gpuInstanceId, computeInstanceId;
};
static_assert(sizeof(nvmlEventData_t) == 32);
static_assert(sizeof(nvmlMemory_v2_t) == 40 && sizeof(nvmlProcessInfo_t) == 24);
static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32);

constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr const char* kFolders[] = {TESSERA_LIBRARY_FOLDER, "/usr/local/nvidia/lib64", "/usr/lib64",
                                    "/usr/lib/wsl/lib"};
constexpr unsigned kUuidBytes = 96,
                   kNameBytes = 96,  // NVML_DEVICE_UUID_V2_BUFFER_SIZE, NVML_DEVICE_NAME_V2_BUFFER_SIZE
    kVersionBytes = 80;              // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE

// A first estimate: an H200 with driver 580 takes 526 MiB. Measurements raise it.
constexpr std::uint64_t kContextBytes = 530 * kMiB;

using ListProcesses = nvmlReturn_t (*)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*);

struct Nvml {
  nvmlReturn_t (*Init)();
  nvmlReturn_t (*Shutdown)();
  const char* (*ErrorString)(nvmlReturn_t);
  nvmlReturn_t (*GetCount)(unsigned*);
  nvmlReturn_t (*GetHandleByIndex)(unsigned, nvmlDevice_t*);
  nvmlReturn_t (*GetUuid)(nvmlDevice_t, char*, unsigned);
  nvmlReturn_t (*GetName)(nvmlDevice_t, char*, unsigned);
  nvmlReturn_t (*GetMemory)(nvmlDevice_t, nvmlMemory_v2_t*);
  ListProcesses GetComputeProcesses;
  ListProcesses GetGraphicsProcesses;
  // May be missing.
  nvmlReturn_t (*GetMigMode)(nvmlDevice_t, unsigned* current, unsigned* pending);
  nvmlReturn_t (*GetDriverVersion)(char*, unsigned);
  nvmlReturn_t (*GetP2PStatus)(nvmlDevice_t, nvmlDevice_t, int capability, int* status);
  // Samples younger than the last argument; NVML_ERROR_NOT_FOUND where there are none.
  nvmlReturn_t (*GetUtilization)(nvmlDevice_t, nvmlProcessUtilizationSample_t*, unsigned*, unsigned long long);
  // All may be missing. The wait is in milliseconds.
  nvmlReturn_t (*CreateEvents)(nvmlEventSet_t*);
  nvmlReturn_t (*FreeEvents)(nvmlEventSet_t);
  nvmlReturn_t (*RegisterEvents)(nvmlDevice_t, unsigned long long, nvmlEventSet_t);
  nvmlReturn_t (*GetEventTypes)(nvmlDevice_t, unsigned long long*);
  nvmlReturn_t (*WaitForEvent)(nvmlEventSet_t, nvmlEventData_t*, unsigned);
};

std::uint64_t TotalRam() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// What this version of the driver cannot do, in the log: programs say it on their stderr only.
void WarnOfOldDriver(const std::string& version) {
  constexpr int kTellsEnds = 555;
  const int major = std::atoi(version.c_str());
  if (major == 0 || major >= kTellsEnds) return;
  log::Warn(
      "driver {} does not report the end of work: where gates divide the time, a program that runs one long kernel "
      "may count as idle for a moment, and limits hold only coarsely. Driver 555 or newer reports it",
      version);
}

template <typename Function>
bool Resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Without one of them there are no events.
void ResolveEvents(void* library, Nvml& nvml) {
  const bool all = Resolve(library, "nvmlEventSetCreate", nvml.CreateEvents) &&
                   Resolve(library, "nvmlEventSetFree", nvml.FreeEvents) &&
                   Resolve(library, "nvmlDeviceRegisterEvents", nvml.RegisterEvents) &&
                   Resolve(library, "nvmlDeviceGetSupportedEventTypes", nvml.GetEventTypes) &&
                   Resolve(library, "nvmlEventSetWait_v2", nvml.WaitForEvent);
  if (!all) nvml.CreateEvents = nullptr;
}

bool ResolveAll(void* library, Nvml& nvml) {
  return Resolve(library, "nvmlInit_v2", nvml.Init) && Resolve(library, "nvmlShutdown", nvml.Shutdown) &&
         Resolve(library, "nvmlErrorString", nvml.ErrorString) &&
         Resolve(library, "nvmlDeviceGetCount_v2", nvml.GetCount) &&
         Resolve(library, "nvmlDeviceGetHandleByIndex_v2", nvml.GetHandleByIndex) &&
         Resolve(library, "nvmlDeviceGetUUID", nvml.GetUuid) && Resolve(library, "nvmlDeviceGetName", nvml.GetName) &&
         Resolve(library, "nvmlDeviceGetMemoryInfo_v2", nvml.GetMemory) &&
         Resolve(library, "nvmlDeviceGetComputeRunningProcesses_v3", nvml.GetComputeProcesses) &&
         Resolve(library, "nvmlDeviceGetGraphicsRunningProcesses_v3", nvml.GetGraphicsProcesses);
}

class NvmlDriver : public GpuDriver {
 public:
  NvmlDriver(const Nvml& nvml, std::string version) : nvml_(nvml), version_(std::move(version)) {}
  ~NvmlDriver() override {
    DropEvents();
    nvml_.Shutdown();
  }

  Result<std::vector<GpuInfo>> List() override {
    unsigned count = 0;
    if (auto r = Check("count the GPUs", nvml_.GetCount(&count)); !r) return std::unexpected(r.error());
    unsigned divided = 0;
    std::vector<GpuInfo> gpus;
    nvml_index_.clear();
    for (unsigned index = 0; index < count; ++index) {
      if (IsDivided(index)) {
        ++divided;
        continue;
      }
      auto gpu = Look(index);
      if (!gpu && gpu.error().code == EHOSTDOWN) {
        log::Warn("GPU {} of NVML is lost and not served: reset it, then restart the daemon", index);
        continue;
      }
      if (!gpu) return std::unexpected(gpu.error());
      gpus.push_back(std::move(*gpu));
      nvml_index_.push_back(index);
    }
    uuids_.clear();
    for (const GpuInfo& gpu : gpus) uuids_.push_back(std::to_array(gpu.uuid.bytes));
    const auto groups = NvlinkGroups(static_cast<std::uint32_t>(gpus.size()),
                                     [this](std::uint32_t a, std::uint32_t b) { return MayPeer(a, b, kNvlink); });
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      gpus[i].driver = version_;
      gpus[i].nvlink_group = groups[i];
      for (std::uint32_t other = 0; other < gpus.size(); ++other) {
        if (other != i && MayPeer(static_cast<std::uint32_t>(i), other, kReadPeer)) gpus[i].reaches.push_back(other);
      }
    }
    if (!gpus.empty()) return gpus;
    if (divided > 0 && divided == count)
      return Fail(ENODEV, "all GPUs are divided into MIG instances, which Tessera does not share",
                  "turn MIG off with nvidia-smi -mig 0");
    return Fail(ENODEV, "NVML lists no GPU", "check nvidia-smi, or use the soft GPU with --soft");
  }

  // nvml.h: NVML_P2P_CAPS_INDEX_READ, NVML_P2P_CAPS_INDEX_NVLINK.
  static constexpr int kReadPeer = 0, kNvlink = 2;
  // Whether GPU a can do that with GPU b.
  bool MayPeer(std::uint32_t a, std::uint32_t b, int what) const {
    constexpr int kOk = 0;  // NVML_P2P_STATUS_OK
    nvmlDevice_t first, second;
    int status = 0;
    return nvml_.GetP2PStatus && nvml_.GetHandleByIndex(nvml_index_[a], &first) == NVML_SUCCESS &&
           nvml_.GetHandleByIndex(nvml_index_[b], &second) == NVML_SUCCESS &&
           nvml_.GetP2PStatus(first, second, what, &status) == NVML_SUCCESS && status == kOk;
  }

  Result<DeviceUse> Measure(std::uint32_t gpu) override {
    nvmlDevice_t device;
    if (gpu >= nvml_index_.size()) return Fail(ENODEV, "there is no GPU " + std::to_string(gpu));
    if (auto r = Check("open a GPU", nvml_.GetHandleByIndex(nvml_index_[gpu], &device)); !r)
      return std::unexpected(r.error());
    DeviceUse measured;
    for (const ListProcesses list : {nvml_.GetComputeProcesses, nvml_.GetGraphicsProcesses}) {
      if (auto r = Collect(device, list, measured); !r) return std::unexpected(r.error());
    }
    const auto memory = MemoryOf(device);
    if (!memory) return std::unexpected(memory.error());
    // Without a figure: at least what is known of its processes.
    if (const auto& figures = *memory) {
      measured.used = figures->used;
    } else {
      for (const auto& [_, bytes] : measured.by_process) measured.used += bytes;
    }
    measured.worked = Worked(gpu, device);
    // In some containers the samples name processes as the host does, and the lists as the container does.
    const auto listed = [&](pid_t pid) { return measured.by_process.contains(pid); };
    if (measured.worked && !measured.worked->empty() && std::ranges::none_of(*measured.worked, listed))
      measured.worked.reset();
    return measured;
  }

  Result<std::unique_ptr<channel::Control>> OpenControl() override {
    if (uuids_.empty()) {
      if (auto listed = List(); !listed) return std::unexpected(listed.error());
    }
    return channel::OpenNvidiaControl(uuids_);
  }

  Result<std::optional<GpuFault>> AwaitFault(Nanos most) override {
    if (!nvml_.CreateEvents) return Fail(ENOTSUP, "this NVML has no events");
    if (!events_) {
      if (auto begun = BeginEvents(); !begun) return std::unexpected(begun.error());
    }
    nvmlEventData_t data{};
    const nvmlReturn_t r = nvml_.WaitForEvent(events_, &data, static_cast<unsigned>(most / kMillisecond));
    if (r == NVML_ERROR_TIMEOUT) return std::nullopt;
    if (r == NVML_ERROR_GPU_IS_LOST) return NextLost();
    if (auto ok = Check("wait for a GPU's events", r); !ok) return std::unexpected(ok.error());
    const auto found = std::ranges::find(watched_, data.device, &std::pair<std::uint32_t, nvmlDevice_t>::second);
    if (found == watched_.end()) return std::nullopt;
    if (data.eventType == nvmlEventTypeDoubleBitEccError)
      return GpuFault{.gpu = found->first, .kind = GpuFault::Kind::kEcc};
    return GpuFault{.gpu = found->first, .kind = GpuFault::Kind::kXid, .xid = data.eventData};
  }

  bool IsSoft() const override { return false; }

 private:
  // Hears of all GPUs but those that are lost: with one of these every wait would end at once.
  Result<void> BeginEvents() {
    watched_.clear();
    if (auto r = Check("make a set of events", nvml_.CreateEvents(&events_)); !r) return r;
    for (std::uint32_t gpu = 0; gpu < nvml_index_.size(); ++gpu) {
      constexpr unsigned long long kFaults = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError;
      nvmlDevice_t device;
      unsigned long long types = 0;
      if (lost_.contains(gpu) || nvml_.GetHandleByIndex(nvml_index_[gpu], &device) != NVML_SUCCESS ||
          nvml_.GetEventTypes(device, &types) != NVML_SUCCESS || (types & kFaults) == 0 ||
          nvml_.RegisterEvents(device, types & kFaults, events_) != NVML_SUCCESS)
        continue;
      watched_.emplace_back(gpu, device);
    }
    if (!watched_.empty()) return {};
    DropEvents();
    return Fail(ENOTSUP, "no GPU here tells of its faults by NVML's events");
  }

  void DropEvents() {
    if (events_) nvml_.FreeEvents(std::exchange(events_, nullptr));
  }

  // The wait says that some GPU is lost, and not which.
  Result<std::optional<GpuFault>> NextLost() {
    for (const auto& [gpu, device] : watched_) {
      nvmlMemory_v2_t memory;
      if (nvml_.GetMemory(device, &memory) != NVML_ERROR_GPU_IS_LOST) continue;
      const std::uint32_t lost = gpu;
      lost_.insert(lost);
      DropEvents();
      return GpuFault{.gpu = lost, .kind = GpuFault::Kind::kLost};
    }
    return Fail(EIO, "NVML says that a GPU is lost, and all answer", "check nvidia-smi");
  }

  Result<GpuInfo> Look(unsigned index) {
    nvmlDevice_t device;
    char uuid[kUuidBytes] = {}, name[kNameBytes] = {};
    if (auto r = Check("open a GPU", nvml_.GetHandleByIndex(index, &device)); !r) return std::unexpected(r.error());
    if (auto r = Check("read a GPU's UUID", nvml_.GetUuid(device, uuid, kUuidBytes)); !r)
      return std::unexpected(r.error());
    if (auto r = Check("read a GPU's name", nvml_.GetName(device, name, kNameBytes)); !r)
      return std::unexpected(r.error());
    const auto memory = MemoryOf(device);
    if (!memory) return std::unexpected(memory.error());
    auto parsed = ParseUuid(uuid);
    if (!parsed) return std::unexpected(parsed.error());
    if (const auto& figures = *memory) return GpuInfo{*parsed, name, figures->total - figures->reserved, kContextBytes};
    const std::uint64_t ram = TotalRam();
    log::Warn("{} has no memory of its own that NVML could tell of: the machine's RAM, {}, counts as its memory", name,
              FormatSize(ram));
    return GpuInfo{*parsed, name, ram, kContextBytes};
  }

  // Whether it is divided into MIG instances: programs then see these and not the GPU.
  bool IsDivided(unsigned index) const {
    nvmlDevice_t device;
    unsigned current = 0, pending = 0;
    char name[kNameBytes] = "unknown";
    if (!nvml_.GetMigMode || nvml_.GetHandleByIndex(index, &device) != NVML_SUCCESS ||
        nvml_.GetMigMode(device, &current, &pending) != NVML_SUCCESS || current == 0)
      return false;
    nvml_.GetName(device, name, kNameBytes);
    log::Warn(
        "GPU {} of nvidia-smi ({}) is left out: it is divided into MIG instances, which Tessera does not share. "
        "nvidia-smi -i {} -mig 0 turns MIG off",
        index, name, index);
    return true;
  }

  // Nothing: the GPU has no figures, because it uses the machine's RAM (Jetson, GB10).
  Result<std::optional<nvmlMemory_v2_t>> MemoryOf(nvmlDevice_t device) const {
    nvmlMemory_v2_t memory;
    const nvmlReturn_t r = nvml_.GetMemory(device, &memory);
    if (r == NVML_ERROR_NOT_SUPPORTED) return std::nullopt;
    if (auto ok = Check("read a GPU's memory", r); !ok) return std::unexpected(ok.error());
    return memory;
  }

  Result<void> Collect(nvmlDevice_t device, ListProcesses list, DeviceUse& measured) {
    std::vector<nvmlProcessInfo_t> processes(64);
    for (;;) {
      auto count = static_cast<unsigned>(processes.size());
      const nvmlReturn_t r = list(device, &count, processes.data());
      if (r == NVML_ERROR_INSUFFICIENT_SIZE) {
        processes.resize(count + 16);  // some more may start meanwhile
        continue;
      }
      if (r == NVML_ERROR_NOT_SUPPORTED) return {};
      if (auto ok = Check("list a GPU's processes", r); !ok) return ok;
      processes.resize(count);
      break;
    }
    for (const auto& process : processes) {
      if (process.usedGpuMemory == ~0ull) continue;
      // A process that does both kinds of work is in both lists, with the same figure.
      auto& bytes = measured.by_process[static_cast<pid_t>(process.pid)];
      bytes = std::max<std::uint64_t>(bytes, process.usedGpuMemory);
    }
    return {};
  }

  // The samples say who executed, but hardly how much: of two programs that shared the GPU 87 to 13 percent they told
  // 80 and 20, and now and then only one of them (docs/hardware-log.md). Absent where the GPU does not sample.
  std::optional<std::unordered_set<pid_t>> Worked(std::uint32_t gpu, nvmlDevice_t device) {
    if (!nvml_.GetUtilization) return {};
    MutexLock lock(mutex_);
    unsigned long long& last = sampled_[gpu];
    std::vector<nvmlProcessUtilizationSample_t> samples(128);
    auto count = static_cast<unsigned>(samples.size());
    nvmlReturn_t r = nvml_.GetUtilization(device, samples.data(), &count, last);
    if (r == NVML_ERROR_INSUFFICIENT_SIZE) {
      samples.resize(count + 16);  // some more may start meanwhile
      count = static_cast<unsigned>(samples.size());
      r = nvml_.GetUtilization(device, samples.data(), &count, last);
    }
    if (r != NVML_SUCCESS && r != NVML_ERROR_NOT_FOUND) return {};
    // There are samples only of those that executed, says NVML's reference; but who did so last goes on being named,
    // with figures of 0 (docs/hardware-log.md). Some drivers answer with places that nobody filled.
    const unsigned long long now = static_cast<unsigned long long>(std::time(nullptr) + 1) * 1'000'000;
    std::unordered_set<pid_t> worked;
    if (last > now) last = 0;  // the clock was set back
    unsigned long long youngest = last;
    for (unsigned i = 0; r == NVML_SUCCESS && i < count; ++i) {
      if (samples[i].timeStamp <= last || samples[i].timeStamp > now) continue;
      youngest = std::max(youngest, samples[i].timeStamp);
      const auto& sample = samples[i];
      if (sample.smUtil | sample.memUtil | sample.encUtil | sample.decUtil)
        worked.insert(static_cast<pid_t>(sample.pid));
    }
    last = youngest;
    return worked;
  }

  Result<void> Check(const char* what, nvmlReturn_t r) const {
    if (r == NVML_SUCCESS) return {};
    return Fail(r == NVML_ERROR_GPU_IS_LOST ? EHOSTDOWN : EIO,
                fmt::format("cannot {}: NVML says \"{}\"", what, nvml_.ErrorString(r)), "check nvidia-smi");
  }

  const Nvml nvml_;
  const std::string version_;            // of the driver; empty: not known
  std::vector<channel::GpuUuid> uuids_;  // of the last List
  std::vector<unsigned> nvml_index_;     // of the GPUs of the last List; constant while others ask
  // Of AwaitFault's thread.
  nvmlEventSet_t events_ = nullptr;
  std::vector<std::pair<std::uint32_t, nvmlDevice_t>> watched_;  // GPUs whose events are heard
  std::set<std::uint32_t> lost_;                                 // GPUs that were told to be lost
  Mutex mutex_;
  // By GPU: the youngest sample that was seen.
  std::map<std::uint32_t, unsigned long long> sampled_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace

std::vector<std::string> NvmlPaths() {
  if (const char* set = std::getenv("TESSERA_REAL_NVML"); set && *set) return {set};
  std::vector<std::string> paths;
  for (const char* folder : kFolders) paths.push_back(fmt::format("{}/{}", folder, kLibrary));
  for (std::string& path : FindInLdCache(kLibrary)) paths.push_back(std::move(path));
  return paths;
}

Result<std::unique_ptr<GpuDriver>> OpenNvmlDriver() {
  const std::string hint =
      "install NVIDIA's driver, name its library in TESSERA_REAL_NVML, or use the soft GPU with --soft";
  std::string tried;
  for (const std::string& path : NvmlPaths()) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      tried = dlerror();
      continue;
    }
    Nvml nvml{};
    (void)Resolve(library, "nvmlDeviceGetProcessUtilization", nvml.GetUtilization);
    ResolveEvents(library, nvml);
    (void)Resolve(library, "nvmlDeviceGetMigMode", nvml.GetMigMode);
    (void)Resolve(library, "nvmlSystemGetDriverVersion", nvml.GetDriverVersion);
    (void)Resolve(library, "nvmlDeviceGetP2PStatus", nvml.GetP2PStatus);
    if (!ResolveAll(library, nvml)) {
      return Fail(ENOSYS, path + " lacks functions of NVML 12",
                  "update NVIDIA's driver to 525 or newer, or use --soft");
    }
    if (const nvmlReturn_t r = nvml.Init(); r != NVML_SUCCESS) {
      return Fail(ENODEV, fmt::format("{} does not start: {}", path, nvml.ErrorString(r)),
                  "check nvidia-smi, or use the soft GPU with --soft");
    }
    char version[kVersionBytes] = {};
    if (!nvml.GetDriverVersion || nvml.GetDriverVersion(version, kVersionBytes) != NVML_SUCCESS) version[0] = '\0';
    WarnOfOldDriver(version);
    return std::make_unique<NvmlDriver>(nvml, version);
  }
  return Fail(ENODEV, fmt::format("no NVIDIA driver here: {} is not found (last tried: {})", kLibrary, tried), hint);
}

}  // namespace tessera::server
