#include "soft/shared/soft_gpu.h"

namespace tessera::soft {

std::string FormatUuid(const std::array<char, 16>& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::vector<SoftGpu> ListSoftGpus(SharedState& state) {
  const Spec& spec = state.spec();
  std::vector<SoftGpu> gpus;
  for (int index = 0; index < spec.devices; ++index) {
    gpus.push_back({.index = index,
                    .uuid = FormatUuid(state.Uuid(index)),
                    .name = kDeviceName,
                    .memory_bytes = spec.memory_bytes,
                    .used_bytes = state.UsedBytes(index),
                    .context_bytes = spec.context_bytes,
                    .multiprocessors = spec.multiprocessors,
                    .processes = state.Processes(index)});
  }
  return gpus;
}

}  // namespace tessera::soft
