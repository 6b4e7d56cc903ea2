#pragma once

#include <string>
#include <vector>

#include "base/mutex.h"
#include "mover/gpu/cuda_library.h"
#include "mover/pool/gpu.h"
#include "wire/line.h"

namespace tessera::mover {

// Reserved addresses in units of one size. Reserved many at a time, and never given back to the driver.
class AddressRange {
 public:
  AddressRange(const CudaLibrary& cuda, std::uint64_t unit) : cuda_(cuda), unit_(unit) {}
  Result<std::uint64_t> Take();
  void GiveBack(std::uint64_t address);

 private:
  const CudaLibrary& cuda_;
  const std::uint64_t unit_;
  Mutex mutex_;
  std::vector<std::uint64_t> free_ TESSERA_GUARDED_BY(mutex_);
};

// A GPU by the CUDA driver, in its primary context, with a stream for each direction.
class CudaGpu : public Gpu {
 public:
  // `uuid` as "GPU-xxxxxxxx-...". ENODEV if CUDA knows no such GPU. The calling thread becomes the loop's thread.
  static Result<std::unique_ptr<CudaGpu>> Open(const CudaLibrary& cuda, const std::string& uuid);

  Result<HostMemory> MakeHost() override;
  void FreeHost(HostMemory memory) override;
  Result<void> Reach(HostMemory& memory) override;
  Result<std::span<std::byte>> BytesOf(HostMemory& memory) override;
  Result<std::unique_ptr<Window>> Import(On on, std::span<const UniqueFd> fds,
                                         std::span<const ChunkPart> parts) override;
  Result<void> StartCopy(Direction direction, Window& window, std::span<const HostMemory* const> host) override;
  Result<bool> Copied(const Window& window) override;

 private:
  class CudaWindow;

  explicit CudaGpu(const CudaLibrary& cuda) : cuda_(cuda) {}
  Result<void> Start();
  Result<void> MapHost(HostMemory& memory);
  // Names the memory of `fd`, if it is of this type of location, and of this GPU where `own`.
  Result<cuda::CUmemGenericAllocationHandle> ImportMemory(const UniqueFd& fd, cuda::CUmemLocationType type, bool own);
  Result<UniqueFd> ExportMemory(cuda::CUmemGenericAllocationHandle handle) const;
  Result<std::unique_ptr<CudaWindow>> NewWindow();
  Result<void> GiveAccess(std::uint64_t address, std::uint64_t bytes) const;

  const CudaLibrary& cuda_;
  cuda::CUdevice device_ = 0;
  cuda::CUcontext context_ = nullptr;
  cuda::CUstream streams_[2] = {};  // by Direction
  cuda::CUmemAllocationProp on_host_ = {};
  AddressRange host_addresses_{cuda_, wire::kChunkBytes};
  AddressRange window_addresses_{cuda_, wire::kMostChunks* wire::kChunkBytes};
  std::vector<cuda::CUevent> events_;  // that no window has; the loop's thread
};

}  // namespace tessera::mover
