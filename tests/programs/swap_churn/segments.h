#pragma once

#include <map>
#include <vector>

#include "buffer.h"
#include "dice.h"

namespace tessera::churn {

// cuMemCreate and cuMemMap: handles of several sizes, mapped one behind the other into a large range that was reserved,
// as PyTorch's expandable segments do it. A buffer grows, shrinks, and comes to lie elsewhere.
class Segments : public Source {
 public:
  Segments(const Gpu& gpu, Dice& dice) : gpu_(gpu), dice_(dice) {}
  const char* Name() const override { return "segment"; }
  cuda::CUresult Make(Buffer& buffer) override;
  void Free(Buffer& buffer) override;

  // Which words have new memory behind them, with any contents.
  struct Fresh {
    cuda::CUresult result = cuda::CUDA_SUCCESS;
    std::uint64_t first = 0, count = 0;
  };
  // One random change of the buffer, by which it grows at most so much: its address, bytes and words follow.
  Fresh Change(Buffer& buffer, std::uint64_t most_more);
  // Unmaps the last handle of one buffer and maps it behind another one, with its words.
  void MoveTail(Buffer& from, Buffer& to);

 private:
  struct Piece {
    cuda::CUmemGenericAllocationHandle handle = 0;
    std::uint64_t bytes = 0;
    bool held = true;  // else the mapping alone keeps the memory
  };
  using Pieces = std::vector<Piece>;

  static cuda::CUdeviceptr Reserve();
  Fresh Grow(Buffer& buffer, std::uint64_t most);
  void Shrink(Buffer& buffer);
  Fresh Replace(Buffer& buffer);
  void Relocate(Buffer& buffer);
  // A new handle, mapped there with access.
  cuda::CUresult Back(cuda::CUdeviceptr address, Piece& piece);
  static cuda::CUresult Map(cuda::CUdeviceptr address, const Piece& piece);
  static void Hold(cuda::CUdeviceptr address, Piece& piece);
  void Unback(cuda::CUdeviceptr address, const Piece& piece);

  const Gpu& gpu_;
  Dice& dice_;
  std::map<cuda::CUdeviceptr, Pieces> segments_;  // by the beginning of the range
};

}  // namespace tessera::churn
