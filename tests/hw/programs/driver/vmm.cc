// Virtual memory management: reserve, create, map, grow in place, share by file descriptor, give back in parts.
#include "driver.h"

constexpr size_t kChunk = 16 * kMiB;
constexpr size_t kChunks = 8;
constexpr uint32_t kTouched = 8192;  // words a kernel changes: few, for a device that computes slowly

static CUmemGenericAllocationHandle Create(const CUmemAllocationProp& prop) {
  CUmemGenericAllocationHandle handle;
  CU(cuMemCreate(&handle, kChunk, &prop, 0));
  return handle;
}

int main() {
  const CUdevice device = UseDevice();
  Kernels kernels;

  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granule = 0;
  CU(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  std::printf("granule %zu\n", granule);
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

  CUdeviceptr base;
  CU(cuMemAddressReserve(&base, kChunk * kChunks, 0, 0, 0));
  const size_t free_before = FreeBytes();
  std::vector<CUmemGenericAllocationHandle> handles;
  for (size_t i = 0; i < kChunks; ++i) {  // grows by a chunk, and what was there stays
    handles.push_back(Create(prop));
    CU(cuMemMap(base + i * kChunk, kChunk, 0, handles.back(), 0));
    CU(cuMemSetAccess(base + i * kChunk, kChunk, &access, 1));
    CU(cuMemsetD32(base + i * kChunk, static_cast<unsigned>(i) * 2654435761u, kChunk / 4));
    kernels.Launch(kernels.mix, base, kTouched, i);
    // Half in the chunk before and half in this one.
    if (i > 0) kernels.Launch(kernels.mix, base + i * kChunk - kTouched / 2 * 4, kTouched, i);
  }
  std::printf("grown %016llx\n", DeviceChecksum(base, kChunk * kChunks / 4));
  std::printf("# charged %zu\n", free_before - FreeBytes());

  CUmemGenericAllocationHandle same;
  CU(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(base + kChunk + 4096)));
  std::printf("retained %s\n", same == handles[1] ? "the same" : "another");
  CU(cuMemRelease(same));
  CUdeviceptr found;
  size_t size;
  CU(cuMemGetAddressRange(&found, &size, base + 2 * kChunk + 1));
  std::printf("range +%llu %zu\n", static_cast<unsigned long long>(found - base), size);

  int fd = -1;  // another mapping of the same memory through a file descriptor: charged once
  const size_t free_before_import = FreeBytes();
  CUmemGenericAllocationHandle imported;
  CU(cuMemExportToShareableHandle(&fd, handles[3], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CU(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CUdeviceptr second;
  CU(cuMemAddressReserve(&second, kChunk, 0, 0, 0));
  CU(cuMemMap(second, kChunk, 0, imported, 0));
  CU(cuMemSetAccess(second, kChunk, &access, 1));
  kernels.Launch(kernels.mix, second, kTouched, 99);
  std::printf("imported %016llx\n", DeviceChecksum(base + 3 * kChunk, kChunk / 4));
  std::printf("# charged_for_the_import %zu\n", free_before_import - FreeBytes());
  CU(cuMemUnmap(second, kChunk));
  CU(cuMemRelease(imported));
  CU(cuMemAddressFree(second, kChunk));
  close(fd);

  for (size_t i = 0; i < kChunks; ++i) CU(cuMemRelease(handles[i]));  // the mappings keep the memory
  std::printf("released %016llx\n", DeviceChecksum(base, kChunk / 4));
  CU(cuMemUnmap(base, kChunk * kChunks));
  CU(cuMemAddressFree(base, kChunk * kChunks));
  std::printf("# not_given_back %zu\n", StillCharged(free_before));
}
