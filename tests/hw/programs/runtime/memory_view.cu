// How much memory each way of asking reports, and by how much an allocation of 1 GiB changes the answer.
#include <dlfcn.h>

#include "device_words.h"

static void Say(const char* name, size_t bytes) { std::printf("# %s %zu\n", name, bytes); }

static void AskNvml() {
  struct Memory {
    unsigned long long total, free, used;
  } memory;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::printf("# nvml_missing 1\n");
    return;
  }
  auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  auto get = reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
  auto info = reinterpret_cast<int (*)(void*, Memory*)>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
  void* device = nullptr;
  EXPECT(init() == 0 && get(0, &device) == 0 && info(device, &memory) == 0);
  Say("nvml_total", memory.total);
  Say("nvml_used", memory.used);
}

int main() {
  RT(cudaFree(nullptr));
  size_t free = 0, total = 0, after = 0;
  CUdevice device;
  CU(cuDeviceGet(&device, 0));
  CU(cuDeviceTotalMem(&total, device));
  Say("cuDeviceTotalMem_total", total);
  CU(cuMemGetInfo(&free, &total));
  Say("cuMemGetInfo_total", total);
  cudaDeviceProp properties;
  RT(cudaGetDeviceProperties(&properties, 0));
  Say("cudaGetDeviceProperties_total", properties.totalGlobalMem);
  RT(cudaMemGetInfo(&free, &total));
  Say("cudaMemGetInfo_total", total);
  Say("used_by_context", total - free);
  void* piece;
  RT(cudaMalloc(&piece, kGiB));
  RT(cudaMemGetInfo(&after, &total));
  Say("taken_by_1_GiB", free - after);
  AskNvml();
  RT(cudaFree(piece));
  RT(cudaMemGetInfo(&after, &total));
  Say("left_after_free", free - after);
  std::printf("done\n");
}
