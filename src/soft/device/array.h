#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/shared/handles.h"

namespace tessera::soft {

class Context;

// A CUDA array: rows one after another, without the tiling of a real GPU. Its memory is no address that kernels know.
struct Array {
  Context* context = nullptr;
  cuda::CUDA_ARRAY3D_DESCRIPTOR shape = {};  // Height and Depth 0 as given: an array of fewer dimensions
  std::size_t element_bytes = 0;
  cuda::CUdeviceptr data = 0;
  std::uint64_t bytes = 0;
  bool level = false;  // of a mipmapped array, which owns the memory

  std::size_t rows() const { return shape.Height ? shape.Height : 1; }
  std::size_t slices() const { return shape.Depth ? shape.Depth : 1; }
  std::size_t row_bytes() const { return shape.Width * element_bytes; }

  cuda::CUarray handle() { return reinterpret_cast<cuda::CUarray>(this); }
  // Null if `handle` is not a live array.
  static Array* FromHandle(cuda::CUarray handle) { return Handles<Array, cuda::CUarray>::Get().Find(handle).get(); }
};

struct MipmappedArray {
  Context* context = nullptr;
  std::vector<std::shared_ptr<Array>> levels;  // each half the size of the one before
};

// Bytes of an element; 0 for a format or number of channels that is not supported.
std::size_t ElementBytes(cuda::CUarray_format format, unsigned channels);

// CUDA_ERROR_INVALID_VALUE for a shape that makes no sense, CUDA_ERROR_OUT_OF_MEMORY if it does not fit.
cuda::CUresult MakeArray(Context& context, const cuda::CUDA_ARRAY3D_DESCRIPTOR& shape, cuda::CUarray* handle);
cuda::CUresult DestroyArray(cuda::CUarray handle);
cuda::CUresult MakeMipmappedArray(Context& context, const cuda::CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels,
                                  cuda::CUmipmappedArray* handle);
cuda::CUresult DestroyMipmappedArray(cuda::CUmipmappedArray handle);

// The handles become invalid; the memory goes with the context's heap.
void ForgetArraysOf(const Context& context);

}  // namespace tessera::soft
