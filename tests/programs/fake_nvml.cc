// An NVML with one made-up GPU, for machines without one. What its processes hold is read from $FAKE_NVML_PROCESSES, a
// file of lines "pid bytes"; a missing file is no processes. Its events come from the FIFO $FAKE_NVML_EVENTS: pairs of
// numbers, type and data; type 0 is the loss of the GPU. $FAKE_NVML_KIND: "mig", its GPU is divided into MIG instances;
// "no-memory", it has no memory of its own. $FAKE_NVML_UUID is its UUID, in place of the one below.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr unsigned long long kTotal = 16ull << 30;
constexpr char kUuid[] = "GPU-11111111-2222-3333-4444-555555555555";
constexpr int kInsufficientSize = 7, kTimeout = 10, kLost = 15, kVersionMismatch = 25;
int device_storage;
bool is_lost = false;

#ifndef FAKE_NVML_VERSION
#define FAKE_NVML_VERSION "580.159.04"
#endif

struct ProcessV1 {
  unsigned pid;
  unsigned long long bytes;
};
struct Process {  // of versions 2 and 3
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

template <typename Process>
unsigned Processes(Process* out, unsigned room) {
  const char* path = std::getenv("FAKE_NVML_PROCESSES");
  FILE* file = path ? std::fopen(path, "r") : nullptr;
  if (!file) return 0;
  unsigned count = 0;
  Process process{};
  while (std::fscanf(file, "%u %llu", &process.pid, &process.bytes) == 2) {
    if (count++ < room) out[count - 1] = process;
  }
  std::fclose(file);
  return count;
}

template <typename Process>
int List(unsigned* count, Process* out) {
  const unsigned room = *count;
  *count = Processes(out, room);
  return *count > room ? kInsufficientSize : 0;
}

bool Is(const char* kind) {
  const char* wanted = std::getenv("FAKE_NVML_KIND");
  return wanted && std::strcmp(wanted, kind) == 0;
}

constexpr int kNotSupported = 3;  // NVML_ERROR_NOT_SUPPORTED

}  // namespace

#define FAKE extern "C" [[gnu::visibility("default")]]

FAKE int nvmlInit_v2() { return 0; }
FAKE int nvmlShutdown() { return 0; }
FAKE const char* nvmlErrorString(int) { return "a made-up error"; }
FAKE int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return std::snprintf(text, length, "%s", FAKE_NVML_VERSION), 0;
}
FAKE int nvmlDeviceGetMigMode(void*, unsigned* current, unsigned* pending) {
  *current = *pending = Is("mig") ? 1 : 0;
  return Is("no-memory") ? kNotSupported : 0;
}
FAKE int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, 0; }
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return *device = &device_storage, index == 0 ? 0 : 2;
}
FAKE int nvmlDeviceGetUUID(void*, char* text, unsigned length) {
  const char* named = std::getenv("FAKE_NVML_UUID");
  return std::snprintf(text, length, "%s", named ? named : kUuid), 0;
}
FAKE int nvmlDeviceGetName(void*, char* text, unsigned length) { return std::snprintf(text, length, "Made-up GPU"), 0; }
FAKE int nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  const unsigned long long used = 1ull << 30;
  return total_free_used[0] = kTotal, total_free_used[1] = kTotal - used, total_free_used[2] = used, 0;
}
FAKE int nvmlDeviceGetMemoryInfo_v2(void*, unsigned long long* version_total_reserved_free_used) {
  if (is_lost) return kLost;
  if (Is("no-memory")) return kNotSupported;
  constexpr unsigned kVersion = 40 | 2u << 24;  // NVML_STRUCT_VERSION(Memory, 2)
  if (static_cast<unsigned>(version_total_reserved_free_used[0]) != kVersion) return kVersionMismatch;
  version_total_reserved_free_used[2] = 0;
  version_total_reserved_free_used[1] = kTotal;
  version_total_reserved_free_used[4] = 1ull << 30;
  version_total_reserved_free_used[3] = kTotal - version_total_reserved_free_used[4];
  return 0;
}
FAKE int nvmlDeviceGetUtilizationRates(void*, unsigned* gpu_memory) {
  return gpu_memory[0] = 99, gpu_memory[1] = 50, 0;
}
FAKE int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, ProcessV1* out) { return List(count, out); }
FAKE int nvmlDeviceGetComputeRunningProcesses_v2(void*, unsigned* count, Process* out) { return List(count, out); }
FAKE int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* out) { return List(count, out); }

// ---- events ----

namespace {
struct Event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
}  // namespace

FAKE int nvmlEventSetCreate(void** set) {
  static int fifo = -1;
  const char* path = std::getenv("FAKE_NVML_EVENTS");
  if (fifo < 0 && path) fifo = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  return *set = &fifo, 0;
}
FAKE int nvmlEventSetFree(void*) { return 0; }
FAKE int nvmlDeviceGetSupportedEventTypes(void*, unsigned long long* types) { return *types = 0x1f, 0; }
FAKE int nvmlDeviceRegisterEvents(void*, unsigned long long, void*) { return 0; }
FAKE int nvmlEventSetWait_v2(void* set, Event* event, unsigned timeout_ms) {
  pollfd news{*static_cast<int*>(set), POLLIN, 0};
  char line[64] = {};
  if (poll(&news, 1, static_cast<int>(timeout_ms)) <= 0 || read(news.fd, line, sizeof line - 1) <= 0) return kTimeout;
  *event = {&device_storage, 0, 0, ~0u, ~0u};
  std::sscanf(line, "%llu %llu", &event->type, &event->data);
  is_lost |= event->type == 0;
  return is_lost ? kLost : 0;
}

FAKE int nvmlDeviceGetGraphicsRunningProcesses_v3(void*, unsigned* count, Process*) { return *count = 0, 0; }
