// The part of NVML's ABI that the shim answers itself. Layouts as NVIDIA's nvml.h of CUDA 13.0 gives them;
// nvml_abi_test.cc compares where that header is installed.
#pragma once

#include <cstdint>

namespace tessera::nvml {

enum Result : int {
  kSuccess = 0,
  kInvalidArgument = 2,
  kInsufficientSize = 7,
  kLibraryNotFound = 12,
};

using Device = struct nvmlDevice_st*;

struct Memory {
  unsigned long long total, free, used;
};

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long used_memory;
};

struct ProcessInfo {  // of versions 2 and 3
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};

struct ProcessDetail {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
  unsigned long long protected_memory;
};

struct ProcessDetailList {
  unsigned version, mode, count;
  ProcessDetail* processes;
};

struct Utilization {
  unsigned gpu, memory;  // per cent
};

struct ProcessUtilization {
  unsigned pid;
  unsigned long long time_stamp;
  unsigned sm, memory, encoder, decoder;
};

}  // namespace tessera::nvml
