// What the driver answers to its calls for managed memory, about memory of each allocator: one line for each line that
// it reads. Memory of cuMemAlloc must give the same answers wherever it lies.
#include <iostream>

#include "driver.h"

namespace {

constexpr size_t kBytes = 128 * kMiB;

struct Memory {
  const char* name;
  CUdeviceptr address;
};

void Print(const char* call, CUresult result) { std::printf(" %s=%s", call, Name(result)); }

void Batches(CUdeviceptr address, CUmemLocation where) {
#if CUDA_VERSION >= 13000
  size_t bytes = kBytes, first = 0;
  Print("prefetch_batch", cuMemPrefetchBatchAsync(&address, &bytes, 1, &where, &first, 1, 0, nullptr));
  Print("discard_batch", cuMemDiscardBatchAsync(&address, &bytes, 1, 0, nullptr));
  Print("discard_and_prefetch_batch",
        cuMemDiscardAndPrefetchBatchAsync(&address, &bytes, 1, &where, &first, 1, 0, nullptr));
#else
  (void)address;
  (void)where;
#endif
}

void Ask(const Memory& memory, CUdevice device) {
  std::printf("%s:", memory.name);
  const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, device};
#if CUDA_VERSION >= 13000
  const CUmemLocation target = where;
  Print("prefetch", cuMemPrefetchAsync(memory.address, kBytes, target, 0, nullptr));
#else
  const CUdevice target = device;
  Print("prefetch", cuMemPrefetchAsync(memory.address, kBytes, target, nullptr));
  Print("prefetch_v2", cuMemPrefetchAsync_v2(memory.address, kBytes, where, 0, nullptr));
#endif
  for (const CUmem_advise advice : {CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_UNSET_READ_MOSTLY,
                                    CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_ACCESSED_BY})
    Print("advise", cuMemAdvise(memory.address, kBytes, advice, target));
  int value = 0;
  void* values[] = {&value};
  size_t size = sizeof value;
  for (CUmem_range_attribute attribute : {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION}) {
    Print("range", cuMemRangeGetAttribute(&value, size, attribute, memory.address, kBytes));
    Print("ranges", cuMemRangeGetAttributes(values, &size, &attribute, 1, memory.address, kBytes));
  }
  Batches(memory.address, where);
  Print("left_behind", cuCtxSynchronize());
  std::printf("; ");
}

}  // namespace

int main() {
  const CUdevice device = UseDevice();
  Memory all[] = {{"cuMemAlloc", 0}, {"cuMemAllocAsync", 0}, {"managed", 0}};
  CU(cuMemAlloc(&all[0].address, kBytes));
  CU(cuMemAllocAsync(&all[1].address, kBytes, nullptr));
  CU(cuMemAllocManaged(&all[2].address, kBytes, CU_MEM_ATTACH_GLOBAL));
  CU(cuCtxSynchronize());
  for (std::string line; std::getline(std::cin, line);) {
    for (const Memory& memory : all) Ask(memory, device);
    std::printf("\n");
    std::fflush(stdout);
  }
}
