// The soft GPUs as a daemon sees them: what NVML tells about real ones.
#pragma once

#include <string>
#include <vector>

#include "soft/shared/shared_state.h"

namespace tessera::soft {

inline constexpr const char* kDeviceName = "Tessera Soft GPU";

struct SoftGpu {
  int index = 0;
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string name;
  std::uint64_t memory_bytes = 0;
  std::uint64_t used_bytes = 0;     // by all processes
  std::uint64_t context_bytes = 0;  // part of used_bytes for each context
  std::uint32_t multiprocessors = 0;
  std::vector<ProcessUse> processes;
};

// A look at all devices. Whoever wants them to last, like a daemon, keeps the SharedState that
// SharedState::Attach(SharedState::DefaultPath(), spec) returned: the last one to leave ends the soft GPUs.
std::vector<SoftGpu> ListSoftGpus(SharedState& state);

std::string FormatUuid(const std::array<char, 16>& uuid);

}  // namespace tessera::soft
