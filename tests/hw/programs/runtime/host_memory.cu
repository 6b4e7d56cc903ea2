// Host memory that the device sees: registered, mapped, write-combined; pointer attributes.
#include <sys/mman.h>

#include "device_words.h"

constexpr uint32_t kWords = 1 << 20;

static unsigned long long ChangedByDevice(uint32_t* host) {
  uint32_t* seen;
  RT(cudaHostGetDevicePointer(&seen, host, 0));
  for (uint32_t i = 0; i < kWords; ++i) host[i] = i;
  Mix<<<64, 256>>>(seen, kWords, 13);
  RT(cudaDeviceSynchronize());
  return Checksum(host, kWords * 4);
}

static void Kind(const char* what, const void* pointer) {
  cudaPointerAttributes attributes = {};
  cudaError_t answer = cudaPointerGetAttributes(&attributes, pointer);
  std::printf("%s kind %d device %d %s\n", what, static_cast<int>(attributes.type), attributes.device, Name(answer));
  cudaGetLastError();
}

int main() {
  uint32_t* mapped;
  RT(cudaHostAlloc(&mapped, kWords * 4, cudaHostAllocMapped | cudaHostAllocPortable));
  std::printf("mapped %016llx\n", ChangedByDevice(mapped));
  Kind("mapped", mapped);
  RT(cudaFreeHost(mapped));

  void* pages = mmap(nullptr, kWords * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(pages != MAP_FAILED);
  RT(cudaHostRegister(pages, kWords * 4, cudaHostRegisterMapped));
  std::printf("registered %016llx\n", ChangedByDevice(static_cast<uint32_t*>(pages)));
  Kind("registered", pages);
  std::printf("registered twice: %s\n", Name(cudaHostRegister(pages, kWords * 4, cudaHostRegisterMapped)));
  cudaGetLastError();
  RT(cudaHostUnregister(pages));

  DeviceWords device(1024);
  Kind("device", device.data);
  Kind("inside", device.data + 100);
  int local = 0;
  Kind("stack", &local);
  Kind("null", nullptr);
}
