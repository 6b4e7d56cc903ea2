// Stream-ordered memory: the default pool, a pool of its own, freeing on another stream, trimming, pool attributes.
#include "device_words.h"

constexpr uint32_t kWords = 1 << 20;

static unsigned long long UseOnce(uint32_t* data, cudaStream_t stream, uint32_t seed) {
  std::vector<uint32_t> host(kWords);
  Fill<<<64, 256, 0, stream>>>(data, kWords, seed);
  Mix<<<64, 256, 0, stream>>>(data, kWords, seed);
  RT(cudaMemcpyAsync(host.data(), data, kWords * 4, cudaMemcpyDeviceToHost, stream));
  RT(cudaStreamSynchronize(stream));
  return Checksum(host.data(), kWords * 4);
}

static unsigned long long Attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  unsigned long long value = 0;
  RT(cudaMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

int main() {
  cudaStream_t a, b;
  RT(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  RT(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  for (int round = 0; round < 20; ++round) {
    uint32_t *first, *second;
    RT(cudaMallocAsync(&first, kWords * 4, a));
    RT(cudaMallocAsync(&second, kWords * 4, b));
    unsigned long long sum = UseOnce(first, a, round) ^ UseOnce(second, b, round + 100);
    if (round % 10 == 0) std::printf("default pool %016llx\n", sum);
    RT(cudaFreeAsync(first, b));  // on another stream: allowed once the work on it is ordered, here by the sync
    RT(cudaFree(second));         // and without a stream
  }
  RT(cudaDeviceSynchronize());

  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool;
  RT(cudaMemPoolCreate(&pool, &props));
  unsigned long long keep = 64 * kMiB;
  RT(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  uint32_t* piece;
  RT(cudaMallocFromPoolAsync(&piece, kWords * 4, pool, a));
  std::printf("own pool %016llx", UseOnce(piece, a, 9));
  std::printf(" used %llu reserved %llu", Attribute(pool, cudaMemPoolAttrUsedMemCurrent),
              Attribute(pool, cudaMemPoolAttrReservedMemCurrent));
  RT(cudaFreeAsync(piece, a));
  RT(cudaStreamSynchronize(a));
  RT(cudaMemPoolTrimTo(pool, 0));
  std::printf(" then %llu %llu\n", Attribute(pool, cudaMemPoolAttrUsedMemCurrent),
              Attribute(pool, cudaMemPoolAttrReservedMemCurrent));
  RT(cudaMemPoolDestroy(pool));

  void* huge = nullptr;
  cudaError_t refused = cudaMallocAsync(&huge, size_t{1} << 40, a);
  std::printf("1 TiB: %s\n", Name(refused));
  cudaGetLastError();
  RT(cudaMallocAsync(&piece, kWords * 4, a));
  std::printf("after it %016llx\n", UseOnce(piece, a, 10));
  RT(cudaFreeAsync(piece, a));
  RT(cudaStreamSynchronize(a));
}
