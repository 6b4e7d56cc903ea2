// Wrong calls: each must return the driver's own error, and the program goes on.
#include "device_words.h"

static void Say(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, Name(error));
  cudaGetLastError();
}
static void Say(const char* what, CUresult result) { std::printf("%s: %s\n", what, Name(result)); }

// The driver may answer or crash when it is given no place for an answer; both ways must be the same.
static int NullPlaces() {
  RT(cudaFree(nullptr));
  size_t total = 0;
  Say("alloc to NULL", cudaMalloc(nullptr, 16));
  Say("alloc to NULL by the driver API", cuMemAlloc(nullptr, 16));
  Say("info to one NULL", cuMemGetInfo(nullptr, &total));
  std::fflush(stdout);
  Say("info to NULL", cuMemGetInfo(nullptr, nullptr));
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 1) return NullPlaces();
  RT(cudaFree(nullptr));  // makes the context
  void* piece = nullptr;
  Say("free of NULL", cudaFree(nullptr));
  Say("free of a number", cudaFree(reinterpret_cast<void*>(0x12345000)));
  int local = 0;
  Say("free of a host address", cudaFree(&local));
  RT(cudaMalloc(&piece, kMiB));
  Say("free of the middle", cudaFree(static_cast<char*>(piece) + 4096));
  Say("free", cudaFree(piece));
  Say("free again", cudaFree(piece));
  Say("free by the driver API", cuMemFree(0x12345000));
  Say("free of 0 by the driver API", cuMemFree(0));
  Say("pool free of a number", cudaFreeAsync(reinterpret_cast<void*>(0x12345000), nullptr));
  Say("alloc of 0 bytes", cudaMalloc(&piece, 0));
  std::printf("its address is %s\n", piece == nullptr ? "NULL" : "not NULL");
  CUdeviceptr pointer = 0;
  Say("alloc of 0 bytes by the driver API", cuMemAlloc(&pointer, 0));
  Say("alloc of 1 TiB", cudaMalloc(&piece, size_t{1} << 40));
  Say("alloc of 1 TiB by the driver API", cuMemAlloc(&pointer, size_t{1} << 40));
  size_t pitch = 0;
  Say("pitched alloc of 1 TiB", cudaMallocPitch(&piece, &pitch, size_t{1} << 20, size_t{1} << 20));
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  Say("create of 1 TiB", cuMemCreate(&handle, size_t{1} << 40, &prop, 0));
  Say("create of 1 byte", cuMemCreate(&handle, 1, &prop, 0));
  Say("device 99", cudaSetDevice(99));
  Say("copy to nowhere", cudaMemcpy(nullptr, &local, 4, cudaMemcpyHostToDevice));
  std::fflush(stdout);
  std::printf("no place for an answer: %d\n", std::system((std::string(argv[0]) + " nulls").c_str()));
  Empty<<<1, 4096>>>();
  Say("launch of 4096 threads a block", cudaGetLastError());
  DeviceWords buffer(1024);
  buffer.FillOn(nullptr, 4);
  std::printf("still working %016llx\n", buffer.Sum());
}
