#include "shim/handles/physical_memory.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "shim/device/attachment.h"
#include "shim/device/in_call.h"
#include "shim/load/current_context.h"
#include "shim/load/hook.h"
#include "shim/memory/arrival.h"
#include "shim/memory/recall.h"
#include "shim/process/say.h"

using namespace tessera::cuda;

TESSERA_HOOK cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
TESSERA_HOOK cuDevicePrimaryCtxRelease_v2(CUdevice);
TESSERA_HOOK cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
TESSERA_HOOK cuMemAddressFree(CUdeviceptr, size_t);
TESSERA_HOOK cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
TESSERA_HOOK cuMemRelease(CUmemGenericAllocationHandle);
TESSERA_HOOK cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TESSERA_HOOK cuMemUnmap(CUdeviceptr, size_t);
TESSERA_HOOK cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
TESSERA_HOOK cuMemGetAccess(unsigned long long*, const CUmemLocation*, CUdeviceptr);

namespace tessera::shim {

using pager::Reservations;

namespace {

constexpr char kCannotMap[] = "cannot change what is mapped at an address";

// `sorry`: as AwaitRecall's.
CUresult HoldPart(Paging& paging, CUdeviceptr part, const char* sorry = kCannotMap) {
  Reservations& reserved = paging.Heap().Reserved();
  CUresult result = reserved.Hold(part);
  if (result == CUDA_SUCCESS) return result;
  result = AwaitRecall(paging.Room(), [&] { return reserved.IsHere(part); }, sorry);
  if (result != CUDA_SUCCESS) reserved.LetGo(part);
  return result;
}

// A range of the driver's own addresses, for a copy. What is mapped in it is unmapped.
class CopyRange {
 public:
  explicit CopyRange(std::uint64_t bytes) : bytes_(bytes) {
    if (REAL(cuMemAddressReserve)(&begin_, bytes, 0, 0, 0) != CUDA_SUCCESS) begin_ = 0;
  }
  CopyRange(const CopyRange&) = delete;
  ~CopyRange() {
    if (begin_ == 0) return;
    if (mapped_ > 0) REAL(cuMemUnmap)(begin_, mapped_);
    REAL(cuMemAddressFree)(begin_, bytes_);
  }
  // Maps memory behind what is mapped.
  CUresult Map(CUmemGenericAllocationHandle handle, std::uint64_t bytes) {
    if (begin_ == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = REAL(cuMemMap)(begin_ + mapped_, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) mapped_ += bytes;
    return result;
  }
  CUresult Open(CUdevice device) const {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return REAL(cuMemSetAccess)(begin_, mapped_, &access, 1);
  }
  CUdeviceptr begin() const { return begin_; }

 private:
  const std::uint64_t bytes_;
  CUdeviceptr begin_ = 0;
  std::uint64_t mapped_ = 0;
};

// A context of a GPU, to copy in: the current one, one that is known, or else the primary one.
class CopyContext {
 public:
  explicit CopyContext(Paging& paging) {
    CUdevice current = -1;
    REAL_AS(cuCtxGetDevice, CUdevice*)(&current);
    context_ = current == paging.Device() ? CurrentContext() : paging.Ordered().Context();
    if (context_) return;
    result_ = cuDevicePrimaryCtxRetain(&context_, paging.Device());
    if (result_ == CUDA_SUCCESS) retained_ = paging.Device();
  }
  CopyContext(const CopyContext&) = delete;
  ~CopyContext() {
    if (retained_ >= 0) cuDevicePrimaryCtxRelease_v2(retained_);
  }
  CUresult Result() const { return result_; }
  CUcontext Get() const { return context_; }

 private:
  CUcontext context_ = nullptr;
  CUdevice retained_ = -1;
  CUresult result_ = CUDA_SUCCESS;
};

// Copies in a context, and waits.
CUresult CopyIn(CUcontext context, CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes) {
  CUcontext before = nullptr;
  CUresult result = REAL_AS(cuCtxPushCurrent_v2, CUcontext)(context);
  if (result != CUDA_SUCCESS) return result;
  result = REAL_AS(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, std::size_t)(to, from, bytes);
  if (result == CUDA_SUCCESS) result = REAL_AS(cuCtxSynchronize)();
  REAL_AS(cuCtxPopCurrent_v2, CUcontext*)(&before);
  return result;
}

// Which devices reach what is mapped there.
std::vector<CUmemAccessDesc> AccessesOf(CUdeviceptr address) {
  std::vector<CUmemAccessDesc> accesses;
  Attachment::ForEach([&](Attachment& attachment) {
    const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, attachment.Device()};
    unsigned long long flags = 0;
    if (REAL(cuMemGetAccess)(&flags, &location, address) == CUDA_SUCCESS && flags != 0)
      accesses.push_back({location, static_cast<CUmemAccess_flags>(flags)});
  });
  return accesses;
}

// The GPUs whose kernels may use memory of `own`, in the order of their ordinals.
std::vector<Attachment*> Reaching(CUdevice own, const std::vector<CUmemAccessDesc>& accesses) {
  std::vector<Attachment*> all;
  Attachment::ForEach([&](Attachment& each) {
    const auto is = [&](const CUmemAccessDesc& access) { return access.location.id == each.Device(); };
    if (each.Device() == own || std::any_of(accesses.begin(), accesses.end(), is)) all.push_back(&each);
  });
  return all;
}

// Runs `act` while no work of any of these GPUs runs. False: it does not end. Takes the mutexes of their gate keepers
// in this order; nothing else takes several.
template <typename Act>
bool WithoutWorkOf(std::span<Attachment* const> gpus, Act& act) {
  if (gpus.empty()) return act(), true;
  bool ran = false;
  const auto others = [&]() -> CUcontext {
    ran = WithoutWorkOf(gpus.subspan(1), act);
    return nullptr;
  };
  return gpus.front()->Gates().WithoutWork(others) && ran;
}

}  // namespace

CUresult Hold(Paging& paging, const Reservations::Range& range) {
  for (const auto& part : paging.Heap().Reserved().PartsOf(range)) {
    const CUresult result = HoldPart(paging, part.begin);
    if (result == CUDA_SUCCESS) continue;
    if (part.begin > range.begin) LetGo(paging, {range.begin, part.begin - range.begin});
    return result;
  }
  return CUDA_SUCCESS;
}

void LetGo(Paging& paging, const Reservations::Range& range) {
  Reservations& reserved = paging.Heap().Reserved();
  for (const auto& part : reserved.PartsOf(range)) reserved.LetGo(part.begin);
}

void GiveRoom(Paging& paging, std::uint64_t bytes) {
  if (bytes > 0) paging.Room().Give(bytes);
  paging.Wake();
}

bool PhysicalMemory::IsMovable(const CUmemAllocationProp& prop) {
  return prop.type == CU_MEM_ALLOCATION_TYPE_PINNED && prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         prop.allocFlags.compressionType == 0 && prop.allocFlags.usage == 0 &&
         (prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
          prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

// ---- room ----

bool PhysicalMemory::TakeRoom() {
  if (!paging.Room().Take(bytes)) return false;
  roomed_ = bytes;
  paging.Room().NotePinned(static_cast<std::int64_t>(bytes), reason_);
  return true;
}

void PhysicalMemory::DropRoom() {
  if (roomed_ == 0) return;
  paging.Room().NotePinned(-static_cast<std::int64_t>(roomed_), reason_);
  GiveRoom(paging, std::exchange(roomed_, 0));
}

bool PhysicalMemory::Take() {
  if (!paging.Account().Take(bytes)) return false;
  if (TakeRoom() || bytes > wire::kChunkBytes) return true;
  paging.Account().Give(bytes);
  return false;
}

void PhysicalMemory::End() {
  if (place_ != 0) GiveRoom(paging, paging.Heap().Reserved().Vacate(place_));
  for (const auto& [piece, ignored] : pieces_) REAL(cuMemRelease)(piece);
  DropRoom();
  if (Fixed()) {
    paging.Room().NotePinned(-static_cast<std::int64_t>(bytes), reason_);
    GiveRoom(paging, bytes);
  }
  paging.Account().Give(bytes);
}

// ---- a block of the heap ----

// Room that has no memory cannot be moved, so it may be in the way of what has to come back. Then it is taken part by
// part.
CUresult PhysicalMemory::MakePart(const Range& part) {
  Reservations& reserved = paging.Heap().Reserved();
  CUresult result = HoldPart(paging, part.begin, roomed_ > 0 ? nullptr : kCannotMap);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && roomed_ > 0) {
    DropRoom();
    result = HoldPart(paging, part.begin);
  }
  if (result != CUDA_SUCCESS) return result;
  if (roomed_ > 0) {
    paging.Room().NotePinned(-static_cast<std::int64_t>(part.bytes), reason_);
    roomed_ -= part.bytes;
  } else if (!paging.Room().Take(part.bytes)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) {
    std::uint64_t freed = 0;
    result = MakeWithRoom(&paging.Room(), [&] { return reserved.Back(part, &freed); });
    if (result != CUDA_SUCCESS) freed += part.bytes;
    GiveRoom(paging, freed);
  }
  reserved.LetGo(part.begin);
  return result;
}

CUresult PhysicalMemory::MakeBlock(CUdeviceptr address) {
  std::uint64_t blank = paging.Heap().Reserved().BlankWith({address, bytes});
  if (blank > 0 && !paging.Account().TakeBlank(blank)) {
    paging.Account().NoteRefused();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = MakeParts(address, blank);
  if (blank > 0) paging.Account().DropBlank(blank);
  return result;
}

CUresult PhysicalMemory::MakeParts(CUdeviceptr address, std::uint64_t& blank) {
  Reservations& reserved = paging.Heap().Reserved();
  const auto parts = reserved.PartsOf({address, bytes});
  std::size_t made = 0;
  for (; made < parts.size(); ++made) {
    const std::uint64_t its_blank = std::min(blank, reserved.BlankWith(parts[made]));
    const CUresult result = MakePart(parts[made]);
    if (result == CUDA_SUCCESS) {
      // The heap's figures have it now, and the next part may wait for long.
      if (its_blank > 0) paging.Account().DropBlank(its_blank);
      blank -= its_blank;
      continue;
    }
    // Parts may be in host memory by now, so all room is given back. The next time it is taken part by part.
    for (std::size_t i = 0; i < made; ++i) GiveRoom(paging, reserved.Vacate(parts[i].begin));
    DropRoom();
    return result;
  }
  reserved.Join({address, bytes});
  place_ = address;
  return CUDA_SUCCESS;
}

// ---- the driver's ----

CUresult PhysicalMemory::Fix() {
  if (Fixed()) return CUDA_SUCCESS;
  if (place_ != 0) return FixBlock();
  if (roomed_ == 0 && !TakeRoom()) return CUDA_ERROR_OUT_OF_MEMORY;
  Handle handle = 0;
  const CUresult result = MakeDriverMemory(&handle);
  if (result != CUDA_SUCCESS) return result;
  pieces_.emplace_back(handle, bytes);
  roomed_ = 0;
  return CUDA_SUCCESS;
}

CUresult PhysicalMemory::FixBlock() {
  const Range range{place_, bytes};
  if (const CUresult held = Hold(paging, range); held != CUDA_SUCCESS) return held;
  paging.Room().NotePinned(static_cast<std::int64_t>(bytes), reason_);
  pieces_ = paging.Heap().Reserved().Detach(place_, mappings > 0);
  if (mappings == 0) LetGo(paging, range);
  place_ = 0;
  return CUDA_SUCCESS;
}

CUresult PhysicalMemory::MakeDriverMemory(Handle* handle) const {
  return MakeWithRoom(&paging.Room(), [&] { return REAL(cuMemCreate)(handle, bytes, &prop, 0); });
}

CUresult PhysicalMemory::MakeOnePiece(CUdeviceptr mapped) {
  if (pieces_.size() == 1) return CUDA_SUCCESS;
  if (in_device) {
    Say("cannot export or bind memory of cuMemCreate that lies in several pieces: a device has it (dma-buf, "
        "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS); export it first, or start the program with TESSERA_SWAP=0");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const InCall in_call;
  const CopyContext context(paging);
  if (context.Result() != CUDA_SUCCESS) return context.Result();
  const auto size = static_cast<std::int64_t>(bytes);
  if (!paging.Room().Take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  paging.Room().NotePinned(size, reason_);
  Handle whole = 0;
  CUresult result = MakeDriverMemory(&whole);
  if (result == CUDA_SUCCESS) {
    const std::vector<CUmemAccessDesc> accesses = mapped == 0 ? std::vector<CUmemAccessDesc>{} : AccessesOf(mapped);
    const auto copy = [&] { result = CopyTo(whole, mapped, context.Get(), accesses); };
    if (!WithoutWorkOf(Reaching(paging.Device(), accesses), copy)) {
      Say("cannot export or bind memory of cuMemCreate that lies in several pieces: the program's work on a GPU that "
          "reaches it does not end, or a stream captures; start the program with TESSERA_SWAP=0");
      result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) {
      for (const auto& [piece, ignored] : pieces_) REAL(cuMemRelease)(piece);
      pieces_ = {{whole, bytes}};
    } else {
      REAL(cuMemRelease)(whole);
    }
  }
  paging.Room().NotePinned(-size, reason_);
  GiveRoom(paging, bytes);
  return result;
}

// Copies the contents, and maps `whole` in place of the pieces; or leaves all as it was.
CUresult PhysicalMemory::CopyTo(Handle whole, CUdeviceptr mapped, CUcontext context,
                                const std::vector<CUmemAccessDesc>& accesses) const {
  CopyRange range(2 * bytes);
  CUresult result = CUDA_SUCCESS;
  for (const auto& [piece, length] : pieces_) {
    if (result == CUDA_SUCCESS) result = range.Map(piece, length);
  }
  if (result == CUDA_SUCCESS) result = range.Map(whole, bytes);
  if (result == CUDA_SUCCESS) result = range.Open(paging.Device());
  if (result == CUDA_SUCCESS) result = CopyIn(context, range.begin() + bytes, range.begin(), bytes);
  if (result != CUDA_SUCCESS || mapped == 0) return result;
  result = Replace(mapped, {{whole, bytes}}, accesses);
  if (result != CUDA_SUCCESS) Replace(mapped, pieces_, accesses);
  return result;
}

// Maps these in place of what is mapped there.
CUresult PhysicalMemory::Replace(CUdeviceptr mapped, const Reservations::Pieces& pieces,
                                 const std::vector<CUmemAccessDesc>& accesses) const {
  REAL(cuMemUnmap)(mapped, bytes);
  CUdeviceptr at = mapped;
  for (const auto& [piece, length] : pieces) {
    const CUresult result = REAL(cuMemMap)(at, length, 0, piece, 0);
    if (result != CUDA_SUCCESS) {
      if (at > mapped) REAL(cuMemUnmap)(mapped, at - mapped);
      return result;
    }
    at += length;
  }
  return accesses.empty() ? CUDA_SUCCESS : REAL(cuMemSetAccess)(mapped, bytes, accesses.data(), accesses.size());
}

void PhysicalMemory::NoteReason(wire::PinReason reason) {
  const auto size = static_cast<std::int64_t>(bytes);
  paging.Room().NotePinned(size, reason);
  paging.Room().NotePinned(-size, std::exchange(reason_, reason));
}

}  // namespace tessera::shim
