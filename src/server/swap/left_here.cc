#include "server/swap/left_here.h"

#include <algorithm>

namespace tessera::server {

// Of a program that is here it is at most what it has let go of.
std::uint64_t LeftHere::Bytes(bool also_taken_again) const {
  if (!left_) return 0;
  auto bytes = left_->BytesOn(gpu_);
  for (const VGpu* vgpu : vgpus_) {
    for (const Process* process : vgpu->processes) {
      const auto its = bytes.find(process->pid);
      if (its == bytes.end()) continue;
      const bool counts = also_taken_again || process->suspension.Away();
      its->second = counts ? std::min(its->second, process->residence.Swapped()) : 0;
    }
  }
  std::uint64_t left = 0;
  for (const auto& [pid, its] : bytes) left += its;
  return left;
}

}  // namespace tessera::server
