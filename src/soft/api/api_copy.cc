// Copies and memsets: each of the API's many functions says what its shape is, two functions do the rest.
#include <bit>

#include "soft/api/stream_variants.h"
#include "soft/device/address_map.h"
#include "soft/exec/copy.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// Asynchronous copies of so much pageable memory return at once, having read it; larger ones wait, as CUDA documents.
constexpr std::size_t kLargestStaged = 64 << 10;

enum class Return { kAtOnce, kWhenDone };

// A copy that names the context of each side: the driver takes each side's own way to its memory.
struct PeerCopy {
  CUDA_MEMCPY3D shape;
};

CUresult RunCopy(const CUDA_MEMCPY3D& shape, bool peers, CUstream handle, Return when) {
  return WithStream(handle, [&](const auto& stream) {
    CopyWork work = {};
    const int copier = peers ? kEachItsOwn : stream->context.device().index();
    if (const CUresult result = ResolveCopy(shape, &work.copy, copier); result != CUDA_SUCCESS) {
      return RefuseWork(stream, result);
    }
    const bool captured = IsCaptured(stream);
    if (captured && when == Return::kWhenDone) return RefuseWork(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    bool wait = work.copy.overlaps_host() && when == Return::kWhenDone;
    if (!captured && when == Return::kAtOnce && work.copy.source.pageable && work.copy.destination.on_device &&
        work.copy.bytes() <= kLargestStaged) {
      work.staged = Stage(&work.copy);
    } else if (work.copy.source.pageable || work.copy.destination.pageable) {
      wait = true;
    }
    OpRef op;
    const CUresult result = Submit(stream, std::move(work), &op);
    return result == CUDA_SUCCESS && wait ? WaitFor(op, stream->context) : result;
  });
}

CUresult Run(const CUDA_MEMCPY3D& shape, CUstream handle, Return when) { return RunCopy(shape, false, handle, when); }
CUresult Run(const PeerCopy& copy, CUstream handle, Return when) { return RunCopy(copy.shape, true, handle, when); }

CUresult Run(const Memset& memset, CUstream handle, Return when) {
  return WithStream(handle, [&](const auto& stream) {
    if (const CUresult result = CheckMemset(memset); result != CUDA_SUCCESS) return RefuseWork(stream, result);
    const auto mapping = AddressMap::Get().Lookup(memset.address);
    const bool wait = when == Return::kWhenDone && mapping && !mapping->OnDevice();
    OpRef op;
    const CUresult result = Submit(stream, MemsetWork{memset}, &op);
    return result == CUDA_SUCCESS && wait ? WaitFor(op, stream->context) : result;
  });
}

template <typename Pointer>
std::uint64_t Address(Pointer pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

// ---- the shapes ---------------------------------------------------------------------------------------------------

CUDA_MEMCPY3D Any(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return LinearCopy(CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from, bytes);
}

CUDA_MEMCPY3D HostToDevice(CUdeviceptr to, const void* from, std::size_t bytes) {
  return LinearCopy(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, Address(from), bytes);
}

CUDA_MEMCPY3D DeviceToHost(void* to, CUdeviceptr from, std::size_t bytes) {
  return LinearCopy(CU_MEMORYTYPE_HOST, Address(to), CU_MEMORYTYPE_DEVICE, from, bytes);
}

CUDA_MEMCPY3D DeviceToDevice(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return LinearCopy(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, bytes);
}

PeerCopy Peer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes) {
  return {DeviceToDevice(to, from, bytes)};
}

CUDA_MEMCPY3D IntoArray(CUDA_MEMCPY3D shape, CUarray array, std::size_t offset) {
  shape.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  shape.dstArray = array;
  shape.dstXInBytes = offset;
  return shape;
}

CUDA_MEMCPY3D FromArray(CUDA_MEMCPY3D shape, CUarray array, std::size_t offset) {
  shape.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  shape.srcArray = array;
  shape.srcXInBytes = offset;
  return shape;
}

CUDA_MEMCPY3D DeviceToArray(CUarray to, std::size_t offset, CUdeviceptr from, std::size_t bytes) {
  return IntoArray(DeviceToDevice(0, from, bytes), to, offset);
}

CUDA_MEMCPY3D ArrayToDevice(CUdeviceptr to, CUarray from, std::size_t offset, std::size_t bytes) {
  return FromArray(DeviceToDevice(to, 0, bytes), from, offset);
}

CUDA_MEMCPY3D HostToArray(CUarray to, std::size_t offset, const void* from, std::size_t bytes) {
  return IntoArray(HostToDevice(0, from, bytes), to, offset);
}

CUDA_MEMCPY3D ArrayToHost(void* to, CUarray from, std::size_t offset, std::size_t bytes) {
  return FromArray(DeviceToHost(to, 0, bytes), from, offset);
}

CUDA_MEMCPY3D ArrayToArray(CUarray to, std::size_t to_offset, CUarray from, std::size_t from_offset,
                           std::size_t bytes) {
  return IntoArray(FromArray(DeviceToDevice(0, 0, bytes), from, from_offset), to, to_offset);
}

// A null shape is a copy from nowhere, which is refused.
constexpr CUDA_MEMCPY3D kNoShape = {.WidthInBytes = 1, .Height = 1, .Depth = 1};

CUDA_MEMCPY3D Plane(const CUDA_MEMCPY2D* shape) { return shape == nullptr ? kNoShape : To3D(*shape); }

CUDA_MEMCPY3D Volume(const CUDA_MEMCPY3D* shape) { return shape == nullptr ? kNoShape : *shape; }

PeerCopy PeerVolume(const CUDA_MEMCPY3D_PEER* shape) {
  if (shape == nullptr) return {kNoShape};
  auto result = std::bit_cast<CUDA_MEMCPY3D>(*shape);
  result.reserved0 = result.reserved1 = nullptr;  // where the contexts were: addresses are the same in all
  return {result};
}

template <typename Element>
Memset Row(CUdeviceptr to, Element value, std::size_t count) {
  return {.address = to, .value = value, .element_bytes = sizeof value, .width = count};
}

template <typename Element>
Memset Rows(CUdeviceptr to, std::size_t pitch, Element value, std::size_t width, std::size_t height) {
  return {
      .address = to, .pitch = pitch, .value = value, .element_bytes = sizeof value, .width = width, .height = height};
}

// ---- from a shape to functions of the API -------------------------------------------------------------------------

// Takes the arguments of `shape`, uses a default stream and returns when host memory is done with.
template <auto shape, int stream>
struct Now;
template <typename Shape, typename... Arguments, Shape (*shape)(Arguments...), int stream>
struct Now<shape, stream> {
  using Type = CUresult(Arguments...);
  static CUresult Call(Arguments... arguments) {
    return Run(shape(arguments...), reinterpret_cast<CUstream>(stream), Return::kWhenDone);
  }
};
constexpr int kLegacy = 1;  // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, which are no constants for a template
constexpr int kOwn = 2;

// Takes a stream behind the arguments of `shape`; null is `default_stream`.
template <auto shape, int default_stream>
struct Async;
template <typename Shape, typename... Arguments, Shape (*shape)(Arguments...), int default_stream>
struct Async<shape, default_stream> {
  using Type = CUresult(Arguments..., CUstream);
  static CUresult Call(Arguments... arguments, CUstream stream) {
    return Run(shape(arguments...), stream != nullptr ? stream : reinterpret_cast<CUstream>(default_stream),
               Return::kAtOnce);
  }
};

}  // namespace

#define EXPORT_NOW(name, shape)              \
  TESSERA_EXPORT(name, Now<&shape, kLegacy>) \
  TESSERA_EXPORT(name##_ptds, Now<&shape, kOwn>)
#define EXPORT_ASYNC(name, shape)              \
  TESSERA_EXPORT(name, Async<&shape, kLegacy>) \
  TESSERA_EXPORT(name##_ptsz, Async<&shape, kOwn>)

EXPORT_NOW(cuMemcpy, Any)
EXPORT_NOW(cuMemcpyHtoD_v2, HostToDevice)
EXPORT_NOW(cuMemcpyDtoH_v2, DeviceToHost)
EXPORT_NOW(cuMemcpyDtoD_v2, DeviceToDevice)
EXPORT_NOW(cuMemcpyPeer, Peer)
EXPORT_NOW(cuMemcpyDtoA_v2, DeviceToArray)
EXPORT_NOW(cuMemcpyAtoD_v2, ArrayToDevice)
EXPORT_NOW(cuMemcpyHtoA_v2, HostToArray)
EXPORT_NOW(cuMemcpyAtoH_v2, ArrayToHost)
EXPORT_NOW(cuMemcpyAtoA_v2, ArrayToArray)
EXPORT_NOW(cuMemcpy2D_v2, Plane)
EXPORT_NOW(cuMemcpy2DUnaligned_v2, Plane)
EXPORT_NOW(cuMemcpy3D_v2, Volume)
EXPORT_NOW(cuMemcpy3DPeer, PeerVolume)
EXPORT_NOW(cuMemsetD8_v2, Row<unsigned char>)
EXPORT_NOW(cuMemsetD16_v2, Row<unsigned short>)
EXPORT_NOW(cuMemsetD32_v2, Row<unsigned>)
EXPORT_NOW(cuMemsetD2D8_v2, Rows<unsigned char>)
EXPORT_NOW(cuMemsetD2D16_v2, Rows<unsigned short>)
EXPORT_NOW(cuMemsetD2D32_v2, Rows<unsigned>)

EXPORT_ASYNC(cuMemcpyAsync, Any)
EXPORT_ASYNC(cuMemcpyHtoDAsync_v2, HostToDevice)
EXPORT_ASYNC(cuMemcpyDtoHAsync_v2, DeviceToHost)
EXPORT_ASYNC(cuMemcpyDtoDAsync_v2, DeviceToDevice)
EXPORT_ASYNC(cuMemcpyPeerAsync, Peer)
EXPORT_ASYNC(cuMemcpyHtoAAsync_v2, HostToArray)
EXPORT_ASYNC(cuMemcpyAtoHAsync_v2, ArrayToHost)
EXPORT_ASYNC(cuMemcpy2DAsync_v2, Plane)
EXPORT_ASYNC(cuMemcpy3DAsync_v2, Volume)
EXPORT_ASYNC(cuMemcpy3DPeerAsync, PeerVolume)
EXPORT_ASYNC(cuMemsetD8Async, Row<unsigned char>)
EXPORT_ASYNC(cuMemsetD16Async, Row<unsigned short>)
EXPORT_ASYNC(cuMemsetD32Async, Row<unsigned>)
EXPORT_ASYNC(cuMemsetD2D8Async, Rows<unsigned char>)
EXPORT_ASYNC(cuMemsetD2D16Async, Rows<unsigned short>)
EXPORT_ASYNC(cuMemsetD2D32Async, Rows<unsigned>)

}  // namespace tessera::soft
