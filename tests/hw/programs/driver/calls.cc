// Calls whose answer depends on how memory was allocated: "calls", or "calls 2" on two GPUs without peer access. Memory
// of cuMemAlloc must look the same in all of them, wherever it lies.
#include "driver.h"

namespace {

constexpr size_t kBytes = 20 * kMiB;
constexpr uint32_t kWords = kBytes / 4;

void Answer(const char* what, CUresult result) { std::printf("%s %s\n", what, Name(result)); }

CUdeviceptr Allocate() {
  CUdeviceptr address;
  CU(cuMemAlloc(&address, kBytes));
  return address;
}

// Freed in the order of a stream: not given out again while work on it goes on.
void FreeAsync(const Kernels& kernels) {
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr kept = Allocate();
  for (uint32_t round = 0; round < 50; ++round) {
    const CUdeviceptr address = Allocate();
    kernels.Launch(kernels.fill, address, kWords, round, stream);
    CU(cuMemcpyDtoDAsync(kept, address, kBytes, stream));
    CU(cuMemFreeAsync(address, stream));
    const CUdeviceptr next = Allocate();  // overwrites it if that came too early
    CU(cuMemsetD32Async(next, 0xffffffff, kWords, nullptr));
    CU(cuMemFree(next));
  }
  CU(cuStreamSynchronize(stream));
  std::printf("freed_in_order %016llx\n", DeviceChecksum(kept, kWords));
  const CUdeviceptr address = Allocate();
  Answer("free_async_inside", cuMemFreeAsync(address + 512, stream));
  Answer("free_async", cuMemFreeAsync(address, stream));
  CU(cuStreamSynchronize(stream));
  CU(cuMemFree(kept));
  CU(cuStreamDestroy(stream));
}

void Attributes() {
  const CUdeviceptr address = Allocate();
  for (const unsigned value : {1u, 0u}) {
    unsigned char seen = 2;
    Answer("set_sync_memops", cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    Answer("get_sync_memops", cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    std::printf("sync_memops %d\n", seen);
  }
  CU(cuMemFree(address));
}

void Advice(CUdevice device) {
  const CUdeviceptr address = Allocate();
#if CUDA_VERSION >= 13000
  const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  Answer("prefetch", cuMemPrefetchAsync(address, kBytes, where, 0, nullptr));
#else
  const CUdevice where = device;
  Answer("prefetch", cuMemPrefetchAsync(address, kBytes, where, nullptr));
#endif
  for (const CUmem_advise advice :
       {CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_ACCESSED_BY})
    Answer("advise", cuMemAdvise(address, kBytes, advice, where));
  int value = 0;
  Answer("range_attribute",
         cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, kBytes));
  Answer("left_behind", cuCtxSynchronize());
  CU(cuMemFree(address));
}

void Batch(const Kernels& kernels) {
#if CUDA_VERSION >= 13000
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr from[] = {Allocate(), Allocate()}, to[] = {Allocate(), Allocate()};
  size_t sizes[] = {kBytes, kBytes}, first = 0;
  for (uint32_t i = 0; i < 2; ++i) kernels.Launch(kernels.fill, from[i], kWords, i, stream);
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  const CUresult copied = cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, stream);
  Answer("batch", copied);
  CU(cuStreamSynchronize(stream));
  for (uint32_t i = 0; i < 2; ++i) {
    if (copied == CUDA_SUCCESS) std::printf("batch_copy %016llx\n", DeviceChecksum(to[i], kWords));
    CU(cuMemFree(from[i]));
    CU(cuMemFree(to[i]));
  }
  CU(cuStreamDestroy(stream));
#else
  (void)kernels;
#endif
}

// Every kind of copy in both directions, from a context of either GPU.
void BetweenGpus() {
  CUcontext contexts[2];
  CUdeviceptr data[2];
  for (int gpu = 0; gpu < 2; ++gpu) {
    UseDevice(gpu);
    CU(cuCtxGetCurrent(&contexts[gpu]));
    data[gpu] = Allocate();
  }
  uint32_t word = 0;
  std::vector<uint32_t> host(kWords);
  for (const int current : {0, 1}) {
    for (const int to : {0, 1}) {
      const CUdeviceptr target = data[to], source = data[1 - to];
      const auto copy = [&](const char* name, auto call) {
        CU(cuCtxSetCurrent(contexts[1 - to]));
        CU(cuMemsetD32(source, ++word, kWords));
        CU(cuCtxSynchronize());
        CU(cuCtxSetCurrent(contexts[current]));
        Answer(name, call());
        Answer(name, cuCtxSynchronize());
        CU(cuCtxSetCurrent(contexts[to]));
        std::printf("%s %d->%d from %d: %016llx\n", name, 1 - to, to, current, DeviceChecksum(target, kWords));
      };
      copy("cuMemcpy", [&] { return cuMemcpy(target, source, kBytes); });
      copy("cuMemcpyDtoD", [&] { return cuMemcpyDtoD(target, source, kBytes); });
      copy("cuMemcpyAsync", [&] { return cuMemcpyAsync(target, source, kBytes, nullptr); });
      copy("cuMemcpyDtoDAsync", [&] { return cuMemcpyDtoDAsync(target, source, kBytes, nullptr); });
      CUDA_MEMCPY2D plane = {};
      plane.srcMemoryType = plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      plane.srcDevice = source;
      plane.dstDevice = target;
      plane.srcPitch = plane.dstPitch = plane.WidthInBytes = 4096;
      plane.Height = kBytes / 4096;
      copy("cuMemcpy2D", [&] { return cuMemcpy2D(&plane); });
#if CUDA_VERSION >= 13000
      copy("cuMemcpyBatchAsync", [&] {
        CUdeviceptr to_all[] = {target, target + kBytes / 2}, from_all[] = {source, source + kBytes / 2};
        size_t sizes[] = {kBytes / 2, kBytes / 2}, first = 0;
        CUmemcpyAttributes attributes = {};
        attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        return cuMemcpyBatchAsync(to_all, from_all, sizes, 2, &attributes, &first, 1, CU_STREAM_PER_THREAD);
      });
      copy("cuMemcpy3DBatchAsync", [&] {
        CUDA_MEMCPY3D_BATCH_OP volume = {};
        volume.src.type = volume.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        volume.src.op.ptr.ptr = source;
        volume.dst.op.ptr.ptr = target;
        volume.extent = {4096, kBytes / 4096, 1};
        volume.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        return cuMemcpy3DBatchAsync(1, &volume, 0, CU_STREAM_PER_THREAD);
      });
#endif
    }
    // Memory of the GPU that is not current, from and to the host.
    CU(cuCtxSetCurrent(contexts[current]));
    const CUdeviceptr other = data[1 - current];
    Answer("cuMemcpyHtoD_elsewhere", cuMemcpyHtoD(other, host.data(), kBytes));
    Answer("cuMemcpyDtoH_elsewhere", cuMemcpyDtoH(host.data(), other, kBytes));
    Answer("cuMemsetD32_elsewhere", cuMemsetD32(other, 5, kWords));
    Answer("left_behind", cuCtxSynchronize());
  }
}

}  // namespace

int main(int count, char**) {
  const CUdevice device = UseDevice();
  if (count > 1) {
    BetweenGpus();
    return 0;
  }
  const Kernels kernels;
  FreeAsync(kernels);
  Attributes();
  Advice(device);
  Batch(kernels);
}
