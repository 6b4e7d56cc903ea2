// Baselines for moving memory, measured by the driver's own calls: plain copies, managed memory, allocations.
#pragma once

#include <algorithm>

#include "check.h"
#include "clock.h"

// Prints "copies OUT IN BOTH": pinned copies of so many bytes to the host, to the device, both at once; bytes a second,
// the best of three.
inline void PrintCopies(size_t bytes) {
  CUdeviceptr device[2];
  void* host[2];
  CUstream stream[2];
  for (int i = 0; i < 2; ++i) {
    CU(cuMemAlloc(&device[i], bytes));
    CU(cuMemHostAlloc(&host[i], bytes, 0));
    CU(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
  }
  double rate[3];
  for (int kind = 0; kind < 3; ++kind) {
    rate[kind] = 0;
    for (int round = 0; round < 3; ++round) {
      const double begin = Now();
      if (kind != 1) CU(cuMemcpyDtoHAsync(host[0], device[0], bytes, stream[0]));
      if (kind != 0) CU(cuMemcpyHtoDAsync(device[1], host[1], bytes, stream[1]));
      CU(cuCtxSynchronize());
      const double moved = static_cast<double>(bytes) * (kind == 2 ? 2 : 1);
      rate[kind] = std::max(rate[kind], moved / (Now() - begin));
    }
  }
  for (int i = 0; i < 2; ++i) {
    CU(cuMemFree(device[i]));
    CU(cuMemFreeHost(host[i]));
    CU(cuStreamDestroy(stream[i]));
  }
  std::printf("copies %.0f %.0f %.0f\n", rate[0], rate[1], rate[2]);
}

inline CUresult Prefetch(CUdeviceptr data, size_t bytes, bool to_host, CUdevice device) {
#if CUDA_VERSION >= 13000
  CUmemLocation place = {};
  place.type = to_host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  place.id = to_host ? 0 : device;
  return cuMemPrefetchAsync(data, bytes, place, 0, nullptr);
#else
  return cuMemPrefetchAsync(data, bytes, to_host ? CU_DEVICE_CPU : device, nullptr);
#endif
}

// Prints "managed OUT IN": managed memory brought to the host and back at its owner's word, bytes a second, the best of
// three. Never more than the device has free: "managed 0 0" then.
inline void PrintManaged(CUdevice device, size_t bytes) {
  size_t free = 0, total = 0;
  CU(cuMemGetInfo(&free, &total));
  double rate[2] = {0, 0};
  if (bytes + kGiB <= free) {
    CUdeviceptr data;
    CU(cuMemAllocManaged(&data, bytes, CU_MEM_ATTACH_GLOBAL));
    CU(Prefetch(data, bytes, false, device));
    CU(cuMemsetD8(data, 1, bytes));
    CU(cuCtxSynchronize());
    for (int round = 0; round < 3; ++round) {
      for (const bool out : {true, false}) {
        const double begin = Now();
        CU(Prefetch(data, bytes, out, device));
        CU(cuCtxSynchronize());
        double& best = rate[out ? 0 : 1];
        best = std::max(best, static_cast<double>(bytes) / (Now() - begin));
      }
    }
    CU(cuMemFree(data));
  }
  std::printf("managed %.0f %.0f\n", rate[0], rate[1]);
}

// Prints "costs A F A F A F": cuMemAlloc and cuMemFree of 1 KiB, 2 MiB and `most` bytes, microseconds, medians of 50.
inline void PrintCosts(size_t most) {
  std::string line = "costs";
  for (const size_t bytes : {size_t{1} << 10, size_t{2} << 20, most}) {
    std::vector<double> allocations, frees;
    for (int i = 0; i < 50; ++i) {
      CUdeviceptr data;
      const double begin = Now();
      CU(cuMemAlloc(&data, bytes));
      const double middle = Now();
      CU(cuMemFree(data));
      allocations.push_back((middle - begin) * 1e6);
      frees.push_back((Now() - middle) * 1e6);
    }
    for (std::vector<double>* each : {&allocations, &frees}) {
      std::nth_element(each->begin(), each->begin() + 25, each->end());
      char median[32];
      std::snprintf(median, sizeof median, " %.1f", (*each)[25]);
      line += median;
    }
  }
  std::printf("%s\n", line.c_str());
}
