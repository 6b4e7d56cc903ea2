// Prints what a program sees of the first GPU through libnvidia-ml.so.1, one JSON object: as nvidia-smi would ask.
#include <dlfcn.h>

#include <cstdio>

struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

int main() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto find = [library](const char* name) { return dlsym(library, name); };
  void* device = nullptr;
  unsigned long long memory[3] = {}, memory_v2[5] = {0x2000028};
  unsigned rates[2] = {}, count = 256, no_room = 0;
  Process processes[256];
  if (reinterpret_cast<int (*)()>(find("nvmlInit_v2"))() != 0) return 1;
  reinterpret_cast<int (*)(unsigned, void**)>(find("nvmlDeviceGetHandleByIndex_v2"))(0, &device);
  reinterpret_cast<int (*)(void*, void*)>(find("nvmlDeviceGetMemoryInfo"))(device, memory);
  reinterpret_cast<int (*)(void*, void*)>(find("nvmlDeviceGetMemoryInfo_v2"))(device, memory_v2);
  reinterpret_cast<int (*)(void*, void*)>(find("nvmlDeviceGetUtilizationRates"))(device, rates);
  const auto list =
      reinterpret_cast<int (*)(void*, unsigned*, Process*)>(find("nvmlDeviceGetComputeRunningProcesses_v3"));
  const int listed = list(device, &count, processes);
  const int refused = list(device, &no_room, nullptr);
  std::printf(
      "{\"total\": %llu, \"free\": %llu, \"used\": %llu, \"total_v2\": %llu, \"used_v2\": %llu, \"utilization\": %u, "
      "\"listed\": %d, \"without_room\": %d, \"pids\": [",
      memory[0], memory[1], memory[2], memory_v2[1], memory_v2[4], rates[0], listed, refused);
  for (unsigned i = 0; i < count && listed == 0; ++i) std::printf("%s%u", i ? ", " : "", processes[i].pid);
  std::printf("]}\n");
  return 0;
}
