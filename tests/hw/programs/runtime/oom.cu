// Allocates until refused, down to 2 MiB, tries every other way to allocate, then goes on. With a number as argument it
// takes no more than that many bytes (for a run on a GPU that others use). With "hold" it waits, full, for a line.
#include "device_words.h"

static void Refused(const char* what, const char* name) { std::printf("# refused_%s %s\n", what, name); }

// When not even 2 MiB are left, nothing else that is 4 MiB large may be had either.
static void EveryWay() {
  void* piece = nullptr;
  size_t pitch = 0;
  const size_t bytes = 4 * kMiB;
  Refused("cudaMalloc", Name(cudaMalloc(&piece, bytes)));
  Refused("cudaMallocPitch", Name(cudaMallocPitch(&piece, &pitch, 4096, bytes / 4096)));
  Refused("cudaMallocManaged", Name(cudaMallocManaged(&piece, bytes)));
  Refused("cudaMallocAsync", Name(cudaMallocAsync(&piece, 64 * kMiB, nullptr)));
  cudaArray_t array;
  cudaChannelFormatDesc words = cudaCreateChannelDesc<uint32_t>();
  Refused("cudaMallocArray", Name(cudaMallocArray(&array, &words, 2048, 2048)));
  cudaMipmappedArray_t mipmapped;
  Refused("cudaMallocMipmappedArray",
          Name(cudaMallocMipmappedArray(&mipmapped, &words, make_cudaExtent(2048, 2048, 0), 4)));
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  Refused("cuMemCreate", Name(cuMemCreate(&handle, bytes, &prop, 0)));
  cudaGetLastError();
}

int main(int argc, char** argv) {
  const size_t most = argc > 1 && std::strcmp(argv[1], "hold") != 0 ? std::strtoull(argv[1], nullptr, 10) : ~size_t{0};
  RT(cudaFree(nullptr));
  std::vector<void*> pieces;
  size_t got = 0;
  for (size_t piece = 256 * kMiB; piece >= 2 * kMiB; piece /= 2) {
    void* data = nullptr;
    while (got + piece <= most && cudaMalloc(&data, piece) == cudaSuccess) {
      pieces.push_back(data);
      got += piece;
    }
  }
  cudaGetLastError();
  std::printf("# got %zu\n", got);
  if (most == ~size_t{0}) EveryWay();
  std::fflush(stdout);
  if (argc > 1 && std::strcmp(argv[1], "hold") == 0) std::getchar();

  Mix<<<64, 256>>>(static_cast<uint32_t*>(pieces.back()), 2 * kMiB / 4, 1);
  RT(cudaDeviceSynchronize());
  for (void* data : pieces) RT(cudaFree(data));
  void* again = nullptr;
  RT(cudaMalloc(&again, got / 2));
  RT(cudaFree(again));
  DeviceWords buffer(1 << 20);
  buffer.FillOn(nullptr, 6);
  std::printf("went on %016llx\n", buffer.Sum());
}
