#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "server/model/vgpu.h"
#include "server/swap/left_memory.h"

namespace tessera::server {

// Memory of one GPU that lies where programs left it when they let go of it. On the loop's thread.
class LeftHere {
 public:
  // The vGPUs are the GPU's; they outlive the object.
  LeftHere(std::uint32_t gpu, const std::vector<VGpu*>& vgpus) : gpu_(gpu), vgpus_(vgpus) {}
  // Of all GPUs; it outlives the object. Without one there is none.
  void Heed(const LeftMemory& left) { left_ = &left; }

  bool Has(pid_t pid) const { return left_ && left_->Any(gpu_, pid); }
  // Whether some memory of this program is left on any GPU.
  bool Anywhere(pid_t pid) const { return left_ && left_->Any(std::nullopt, pid); }
  // `also_taken_again`: with those bytes that programs here take again, which come free as they do.
  std::uint64_t Bytes(bool also_taken_again) const;

 private:
  const std::uint32_t gpu_;
  const std::vector<VGpu*>& vgpus_;
  const LeftMemory* left_ = nullptr;
};

}  // namespace tessera::server
