#include "soft/exec/copy.h"

#include <algorithm>
#include <cstring>

#include "soft/device/address_map.h"
#include "soft/device/array.h"
#include "soft/device/context.h"
#include "soft/device/device.h"
#include "soft/device/memory_steps.h"
#include "soft/device/sparse_copy.h"
#include "soft/device/virtual_memory.h"
#include "soft/shared/wait.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// The bytes copied between two looks at the clock, and how far a copy may be ahead of the link: timers are not exact,
// and a copy that has got ahead need not sleep for each chunk.
constexpr std::size_t kChunkBytes = 1 << 20;
constexpr Nanos kAhead = kMillisecond;
// A sleep costs the processor more than what is shorter. The link's time is counted all the same.
constexpr Nanos kNoSleep = 10 * kMicrosecond;

// The two halves of CUDA_MEMCPY3D have the same fields under different names.
struct Side {
  std::size_t x, y, z, level;
  CUmemorytype type;
  std::uint64_t host;
  CUdeviceptr device;
  CUarray array;
  std::size_t pitch, height;
};

Side SourceOf(const CUDA_MEMCPY3D& c) {
  return {
      c.srcXInBytes, c.srcY,     c.srcZ,     c.srcLOD,   c.srcMemoryType, reinterpret_cast<std::uint64_t>(c.srcHost),
      c.srcDevice,   c.srcArray, c.srcPitch, c.srcHeight};
}

Side DestinationOf(const CUDA_MEMCPY3D& c) {
  return {
      c.dstXInBytes, c.dstY,     c.dstZ,     c.dstLOD,   c.dstMemoryType, reinterpret_cast<std::uint64_t>(c.dstHost),
      c.dstDevice,   c.dstArray, c.dstPitch, c.dstHeight};
}

CUresult ResolveArray(const Side& side, const Copy& copy, Box* box) {
  const Array* array = Array::FromHandle(side.array);
  if (array == nullptr || side.x + copy.width > array->row_bytes() || side.y + copy.height > array->rows() ||
      side.z + copy.depth > array->slices()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *box = {.pitch = array->row_bytes(),
          .slice_pitch = array->row_bytes() * array->rows(),
          .on_device = true,
          .array = true,
          .device = array->context->device().index()};
  box->address = array->data + side.z * box->slice_pitch + side.y * box->pitch + side.x;
  return CUDA_SUCCESS;
}

CUresult ResolveMemory(const Side& side, const Copy& copy, Box* box) {
  const std::uint64_t base = side.type == CU_MEMORYTYPE_HOST ? side.host : side.device;
  // A pitch or height of 0 means that nothing lies between.
  const std::size_t pitch = side.pitch ? side.pitch : side.x + copy.width;
  const std::size_t height = side.height ? side.height : side.y + copy.height;
  if (base == 0 || (copy.height > 1 && pitch < side.x + copy.width) ||
      (copy.depth > 1 && (pitch < side.x + copy.width || height < side.y + copy.height))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *box = {.pitch = pitch, .slice_pitch = pitch * height};
  box->address = base + side.z * box->slice_pitch + side.y * box->pitch + side.x;
  const std::uint64_t end = box->Row(copy.height - 1, copy.depth - 1) + copy.width;

  AddressMap& memory = AddressMap::Get();
  const auto mapping = memory.Lookup(box->address);
  if (!mapping) {
    box->pageable = true;
    return side.type == CU_MEMORYTYPE_DEVICE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  if (!memory.Covers(box->address, end - box->address)) return CUDA_ERROR_INVALID_VALUE;
  box->on_device = mapping->OnDevice();
  box->device = mapping->device;
  return CUDA_SUCCESS;
}

CUresult ResolveSide(const Side& side, const Copy& copy, Box* box) {
  if (side.level != 0) return CUDA_ERROR_INVALID_VALUE;  // reserved
  switch (side.type) {
    case CU_MEMORYTYPE_ARRAY:
      return ResolveArray(side, copy, box);
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      return ResolveMemory(side, copy, box);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// The link that a copy crosses: between host and device, or between two devices.
struct Link {
  SharedState* state = nullptr;  // null: none
  int device = 0;
  CopyDirection direction = CopyDirection::kToDevice;
};

Link LinkOf(const Copy& copy) {
  const Box& to = copy.destination;
  const Box& from = copy.source;
  if (!to.on_device && !from.on_device) return {};
  if (to.on_device && from.on_device && to.device == from.device) return {};
  Device& device = *DeviceOf(to.on_device ? to.device : from.device);
  return {&device.state(), device.shared_index(), to.on_device ? CopyDirection::kToDevice : CopyDirection::kToHost};
}

// Arrays and the program's own memory are in no map; a program that frees them in use is on its own.
bool Reachable(const Box& box, std::uint64_t address, std::size_t bytes) {
  return box.pageable || box.array || AddressMap::Get().Covers(address, bytes);
}

// Memory of the driver's own allocators is open to all.
bool OpenTo(int device, const Box& box) {
  unsigned long long access = 0;
  return box.array ||
         VirtualMemory::Get().GetAccess(box.address, {CU_MEM_LOCATION_TYPE_DEVICE, device}, &access) != CUDA_SUCCESS ||
         access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

void Fill(std::uint64_t address, std::size_t bytes, const Memset& memset) {
  switch (memset.element_bytes) {
    case 1:
      std::memset(reinterpret_cast<void*>(address), static_cast<int>(memset.value), bytes);
      break;
    case 2:
      std::fill_n(reinterpret_cast<std::uint16_t*>(address), bytes / 2, static_cast<std::uint16_t>(memset.value));
      break;
    default:
      std::fill_n(reinterpret_cast<std::uint32_t*>(address), bytes / 4, memset.value);
  }
}

}  // namespace

CUresult ResolveCopy(const CUDA_MEMCPY3D& shape, Copy* copy, int copier) {
  *copy = {.shape = shape, .width = shape.WidthInBytes, .height = shape.Height, .depth = shape.Depth};
  if (shape.reserved0 != nullptr || shape.reserved1 != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (copy->bytes() == 0) return CUDA_SUCCESS;
  if (const CUresult result = ResolveSide(SourceOf(shape), *copy, &copy->source); result != CUDA_SUCCESS) return result;
  if (const CUresult result = ResolveSide(DestinationOf(shape), *copy, &copy->destination); result != CUDA_SUCCESS) {
    return result;
  }
  if (copier != kEachItsOwn && copy->source.on_device && copy->destination.on_device &&
      !(OpenTo(copier, copy->source) && OpenTo(copier, copy->destination))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Rows without gaps are one long row.
  if (copy->source.pitch == copy->width && copy->destination.pitch == copy->width) {
    copy->width *= copy->height;
    copy->height = 1;
  }
  return CUDA_SUCCESS;
}

CUDA_MEMCPY3D LinearCopy(CUmemorytype destination_type, std::uint64_t destination, CUmemorytype source_type,
                         std::uint64_t source, std::size_t bytes) {
  CUDA_MEMCPY3D shape = {};
  shape.dstMemoryType = destination_type;
  shape.dstHost = reinterpret_cast<void*>(destination);
  shape.dstDevice = destination;
  shape.srcMemoryType = source_type;
  shape.srcHost = reinterpret_cast<const void*>(source);
  shape.srcDevice = source;
  shape.WidthInBytes = bytes;
  shape.Height = shape.Depth = 1;
  return shape;
}

CUDA_MEMCPY3D To3D(const CUDA_MEMCPY2D& shape) {
  CUDA_MEMCPY3D result = {};
  result.srcXInBytes = shape.srcXInBytes;
  result.srcY = shape.srcY;
  result.srcMemoryType = shape.srcMemoryType;
  result.srcHost = shape.srcHost;
  result.srcDevice = shape.srcDevice;
  result.srcArray = shape.srcArray;
  result.srcPitch = shape.srcPitch;
  result.dstXInBytes = shape.dstXInBytes;
  result.dstY = shape.dstY;
  result.dstMemoryType = shape.dstMemoryType;
  result.dstHost = shape.dstHost;
  result.dstDevice = shape.dstDevice;
  result.dstArray = shape.dstArray;
  result.dstPitch = shape.dstPitch;
  result.WidthInBytes = shape.WidthInBytes;
  result.Height = shape.Height;
  result.Depth = 1;
  return result;
}

std::shared_ptr<const std::vector<std::byte>> Stage(Copy* copy) {
  auto staged = std::make_shared<std::vector<std::byte>>();
  for (std::size_t z = 0; z < copy->depth; ++z) {
    for (std::size_t y = 0; y < copy->height; ++y) {
      const auto* row = reinterpret_cast<const std::byte*>(copy->source.Row(y, z));
      staged->insert(staged->end(), row, row + copy->width);
    }
  }
  copy->source.address = reinterpret_cast<std::uint64_t>(staged->data());
  copy->source.pitch = copy->width;
  copy->source.slice_pitch = copy->width * copy->height;
  return staged;
}

CUresult CheckMemset(const Memset& memset) {
  const std::size_t bytes = memset.element_bytes;
  if (bytes != 1 && bytes != 2 && bytes != 4) return CUDA_ERROR_INVALID_VALUE;
  if (memset.width == 0 || memset.height == 0) return CUDA_SUCCESS;
  const std::size_t row = memset.width * bytes;
  const std::size_t pitch = memset.height > 1 ? memset.pitch : 0;
  if (memset.address % bytes != 0 || pitch % bytes != 0 || (memset.height > 1 && pitch < row)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return AddressMap::Get().Covers(memset.address, (memset.height - 1) * pitch + row) ? CUDA_SUCCESS
                                                                                     : CUDA_ERROR_INVALID_VALUE;
}

CUresult Execute(const Copy& copy, MemorySteps& steps) {
  const Link link = LinkOf(copy);
  Nanos link_end = 0;
  std::size_t unbilled = 0;
  SparseCopy pieces;
  for (std::size_t z = 0; z < copy.depth; ++z) {
    for (std::size_t y = 0; y < copy.height; ++y) {
      for (std::size_t x = 0; x < copy.width; x += kChunkBytes) {
        const std::size_t bytes = std::min(kChunkBytes, copy.width - x);
        const std::uint64_t to = copy.destination.Row(y, z) + x;
        const std::uint64_t from = copy.source.Row(y, z) + x;
        if (!steps.Begin()) return CUDA_SUCCESS;
        if (!Reachable(copy.source, from, bytes) || !Reachable(copy.destination, to, bytes)) {
          return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        pieces.Copy(to, from, bytes);
        steps.End();
        unbilled += bytes;
        if (link.state == nullptr || unbilled < kChunkBytes) continue;
        if (steps.aborted()) return CUDA_SUCCESS;
        link_end = link.state->ReserveTransfer(link.device, link.direction, std::exchange(unbilled, 0));
        if (link_end > MonotonicNow() + kAhead) WaitUntil(link_end - kAhead);
      }
    }
  }
  if (link.state == nullptr) return CUDA_SUCCESS;
  if (unbilled != 0) link_end = link.state->ReserveTransfer(link.device, link.direction, unbilled);
  if (link_end > MonotonicNow() + kNoSleep) WaitUntil(link_end);
  return CUDA_SUCCESS;
}

CUresult Execute(const Memset& memset, MemorySteps& steps) {
  const std::size_t row_bytes = memset.width * memset.element_bytes;
  for (std::size_t y = 0; y < memset.height; ++y) {
    for (std::size_t x = 0; x < row_bytes; x += kChunkBytes) {
      const std::size_t bytes = std::min(kChunkBytes, row_bytes - x);
      const std::uint64_t to = memset.address + y * memset.pitch + x;
      if (!steps.Begin()) return CUDA_SUCCESS;
      if (!AddressMap::Get().Covers(to, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      Fill(to, bytes, memset);
      steps.End();
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace tessera::soft
