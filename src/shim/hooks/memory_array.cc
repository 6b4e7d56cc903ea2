// Arrays and mipmapped arrays: counted by what their descriptor needs.
#include <algorithm>

#include "shim/device/current.h"
#include "shim/load/green_contexts.h"
#include "shim/memory/ledger.h"

using namespace tessera::cuda;
using namespace tessera::shim;
using tessera::wire::PinReason;

namespace {

std::uint64_t ElementBytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    default:
      return 4;  // block-compressed and video formats need less: over-counted rather than not
  }
}

std::uint64_t Bytes(std::uint64_t width, std::uint64_t height, std::uint64_t depth, CUarray_format format,
                    unsigned channels) {
  return std::max<std::uint64_t>(1, width) * std::max<std::uint64_t>(1, height) * std::max<std::uint64_t>(1, depth) *
         ElementBytes(format) * std::max(1u, channels);
}

// Sparse arrays and those that are mapped later own no memory.
std::uint64_t Charge(const CUDA_ARRAY3D_DESCRIPTOR* d) {
  if (!d || d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
  return ChargeOf(Bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels));
}

std::uint64_t Charge(const CUDA_ARRAY_DESCRIPTOR* d) {
  return d ? ChargeOf(Bytes(d->Width, d->Height, 1, d->Format, d->NumChannels)) : 0;
}

// The descriptor of CUDA 3 with 32-bit sizes.
struct OldDescriptor {
  unsigned Width, Height;
  CUarray_format Format;
  unsigned NumChannels;
};
struct OldDescriptor3D {
  unsigned Width, Height, Depth;
  CUarray_format Format;
  unsigned NumChannels, Flags;
};

std::uint64_t Charge(const OldDescriptor* d) {
  return d ? ChargeOf(Bytes(d->Width, d->Height, 1, d->Format, d->NumChannels)) : 0;
}
std::uint64_t Charge(const OldDescriptor3D* d) {
  return d ? ChargeOf(Bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels)) : 0;
}

template <typename Handle>
std::uint64_t KeyOf(Handle handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}

}  // namespace

#define ARRAY_CREATE(name, Descriptor)                                                 \
  TESSERA_HOOK name(CUarray* array, const Descriptor* descriptor) {                    \
    return Counted(                                                                    \
        CurrentRoom(), AllocatingContext(), Charge(descriptor), PinReason::kArray,     \
        [=] { return REAL(name)(array, descriptor); }, [=] { return KeyOf(*array); }); \
  }
ARRAY_CREATE(cuArrayCreate, OldDescriptor)
ARRAY_CREATE(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR)
ARRAY_CREATE(cuArray3DCreate, OldDescriptor3D)
ARRAY_CREATE(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR)

TESSERA_HOOK cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                    unsigned levels) {
  // Each level has an eighth (at least a quarter, in two dimensions) of the one above: a third more in sum.
  const std::uint64_t base = Charge(descriptor);
  return Counted(
      CurrentRoom(), AllocatingContext(), levels > 1 ? ChargeOf(base + base / 3) : base, PinReason::kArray,
      [=] { return REAL(cuMipmappedArrayCreate)(array, descriptor, levels); }, [=] { return KeyOf(*array); });
}

TESSERA_HOOK cuArrayDestroy(CUarray array) {
  return CountedFree(KeyOf(array), [=] { return REAL(cuArrayDestroy)(array); });
}

TESSERA_HOOK cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return CountedFree(KeyOf(array), [=] { return REAL(cuMipmappedArrayDestroy)(array); });
}
