// A buffer of words on the device for programs of the runtime.
#pragma once

#include "check.h"
#include "kernels.cuh"

struct DeviceWords {
  explicit DeviceWords(uint32_t count) : words(count) { RT(cudaMalloc(&data, bytes())); }
  ~DeviceWords() { cudaFree(data); }
  DeviceWords(const DeviceWords&) = delete;

  size_t bytes() const { return size_t{words} * 4; }
  void FillOn(cudaStream_t stream, uint32_t seed) {
    Fill<<<64, 256, 0, stream>>>(data, words, seed);
    RT(cudaGetLastError());
  }
  void MixOn(cudaStream_t stream, uint32_t value) {
    Mix<<<64, 256, 0, stream>>>(data, words, value);
    RT(cudaGetLastError());
  }
  // Waits for the whole device.
  unsigned long long Sum() const {
    std::vector<uint32_t> host(words);
    RT(cudaDeviceSynchronize());
    RT(cudaMemcpy(host.data(), data, bytes(), cudaMemcpyDeviceToHost));
    return Checksum(host.data(), bytes());
  }

  uint32_t words;
  uint32_t* data = nullptr;
};
