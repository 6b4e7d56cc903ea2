// Copies and memsets of every shape: pitched, 3D, arrays, symbols, peer to itself, device to device.
#include "device_words.h"

__constant__ uint32_t table[256];
__global__ void FromTable(uint32_t* out) { out[threadIdx.x] = table[threadIdx.x] * 3; }

constexpr size_t kWidth = 1000, kHeight = 64, kDepth = 8;

static void Pitched(const std::vector<unsigned char>& in) {
  void* pitched;
  size_t pitch;
  RT(cudaMallocPitch(&pitched, &pitch, kWidth, kHeight));
  std::vector<unsigned char> out(kWidth * kHeight);
  RT(cudaMemset2D(pitched, pitch, 0x5a, kWidth, kHeight));
  RT(cudaMemcpy2D(pitched, pitch, in.data(), kWidth, kWidth, kHeight / 2, cudaMemcpyHostToDevice));
  RT(cudaMemcpy2D(out.data(), kWidth, pitched, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
  std::printf("pitched %zu %016llx\n", pitch, Checksum(out.data(), out.size()));
  RT(cudaFree(pitched));
}

static void Volume(const std::vector<unsigned char>& in) {
  cudaExtent extent = make_cudaExtent(kWidth, kHeight, kDepth);
  cudaPitchedPtr volume;
  RT(cudaMalloc3D(&volume, extent));
  RT(cudaMemset3D(volume, 0x33, extent));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(const_cast<unsigned char*>(in.data()), kWidth, kWidth, kHeight);
  copy.dstPtr = volume;
  copy.extent = make_cudaExtent(kWidth / 2, kHeight / 2, kDepth);
  copy.kind = cudaMemcpyHostToDevice;
  RT(cudaMemcpy3D(&copy));
  std::vector<unsigned char> out(in.size());
  copy = {};
  copy.srcPtr = volume;
  copy.dstPtr = make_cudaPitchedPtr(out.data(), kWidth, kWidth, kHeight);
  copy.extent = extent;
  copy.kind = cudaMemcpyDeviceToHost;
  RT(cudaMemcpy3D(&copy));
  std::printf("volume %016llx\n", Checksum(out.data(), out.size()));
  RT(cudaFree(volume.ptr));
}

static void Array(const std::vector<unsigned char>& in) {
  cudaChannelFormatDesc bytes = cudaCreateChannelDesc<unsigned char>();
  cudaArray_t array;
  RT(cudaMallocArray(&array, &bytes, kWidth, kHeight));
  RT(cudaMemcpy2DToArray(array, 0, 0, in.data(), kWidth, kWidth, kHeight, cudaMemcpyHostToDevice));
  std::vector<unsigned char> out(kWidth * kHeight);
  RT(cudaMemcpy2DFromArray(out.data(), kWidth, array, 0, 0, kWidth, kHeight, cudaMemcpyDeviceToHost));
  std::printf("array %016llx\n", Checksum(out.data(), out.size()));
  RT(cudaFreeArray(array));
  cudaMipmappedArray_t mipmapped;
  RT(cudaMallocMipmappedArray(&mipmapped, &bytes, make_cudaExtent(256, 256, 0), 4));
  RT(cudaFreeMipmappedArray(mipmapped));
}

static void Linear() {
  DeviceWords a(1 << 18), b(1 << 18);
  a.FillOn(nullptr, 77);
  RT(cudaMemcpy(b.data, a.data, a.bytes(), cudaMemcpyDeviceToDevice));
  RT(cudaMemcpyPeer(a.data, 0, b.data, 0, a.bytes() / 2));
  RT(cudaMemsetAsync(b.data, 0xab, 1001, nullptr));
  std::printf("linear %016llx\n", a.Sum() ^ b.Sum());
  uint32_t host[256];
  for (uint32_t i = 0; i < 256; ++i) host[i] = i * i;
  RT(cudaMemcpyToSymbol(table, host, sizeof host));
  DeviceWords out(256);
  FromTable<<<1, 256>>>(out.data);
  std::printf("symbol %016llx\n", out.Sum());
}

int main() {
  std::vector<unsigned char> in(kWidth * kHeight * kDepth);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7 + i / 251);
  Pitched(in);
  Volume(in);
  Array(in);
  Linear();
}
