#include "shim/handles/handle_memory.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <span>
#include <utility>

#include "base/uncancelled.h"
#include "shim/device/current.h"
#include "shim/load/hook.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
TESSERA_HOOK cuMemUnmap(CUdeviceptr, size_t);
TESSERA_HOOK cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
TESSERA_HOOK cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                          unsigned long long);

namespace tessera::shim {

using pager::Reservations;

namespace {

bool Whole(std::uint64_t bytes) { return bytes % Reservations::kGranule == 0; }

// Of the GPU that the program is likely to mean: of the current context, or else of the last handle, if it has any.
std::atomic<CUdevice> last_device{-1};

Paging* LikelyPaging() {
  if (const Attachment* attachment = CurrentAttachment()) return attachment->Pager();
  Paging* likely = nullptr;
  Paging::ForEach([&](Paging& each) {
    if (!likely || each.Device() == last_device) likely = &each;
  });
  return likely;
}

// The reservation of ours that `address` lies in, and whose.
std::optional<Reservations::Range> ReservedAt(CUdeviceptr address, Paging** paging) {
  *paging = Paging::Of(address);
  return *paging ? (*paging)->Heap().Reserved().Around(address) : std::nullopt;
}

}  // namespace

HandleMemory& HandleMemory::Instance() {
  static auto* memory = new HandleMemory;
  return *memory;
}

HandleMemory::Memory* HandleMemory::Find(Handle handle) {
  const auto at = memories_.find(handle);
  return at == memories_.end() || at->second->handles == 0 ? nullptr : at->second.get();
}

// The mapping that `address` lies in, or the end.
HandleMemory::Mappings::iterator HandleMemory::Around(CUdeviceptr address) {
  const auto behind = mappings_.upper_bound(address);
  if (behind == mappings_.begin()) return mappings_.end();
  const auto at = std::prev(behind);
  return address - at->first < at->second.bytes ? at : mappings_.end();
}

// ---- addresses ----

HandleMemory::Result HandleMemory::Reserve(CUdeviceptr* address, std::uint64_t bytes, std::uint64_t alignment,
                                           CUdeviceptr hint, unsigned long long flags) {
  const bool right = address != nullptr && bytes > 0 && Whole(bytes) && (alignment & (alignment - 1)) == 0;
  if (!right || flags != 0 || hint != 0 || alignment > Reservations::kAlignment) return std::nullopt;
  Paging* paging = LikelyPaging();
  if (!paging) return std::nullopt;
  std::uint64_t room = 0;
  const CUresult result = paging->Heap().Reserved().Reserve(bytes, address, &room);
  GiveRoom(*paging, room);
  return result == CUDA_SUCCESS ? Result(result) : std::nullopt;  // the driver may have more
}

HandleMemory::Result HandleMemory::FreeAddresses(CUdeviceptr address, std::uint64_t bytes) {
  Paging* paging = nullptr;
  const auto range = ReservedAt(address, &paging);
  if (!range) return std::nullopt;
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  const auto mapping = mappings_.lower_bound(address);
  const bool mapped = mapping != mappings_.end() && mapping->first - address < bytes;
  if (range->begin != address || range->bytes != bytes || mapped) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult fixed = FixUnmapped(*range); fixed != CUDA_SUCCESS) return fixed;
  std::uint64_t room = 0;
  paging->Heap().Reserved().Free(*range, &room);
  GiveRoom(*paging, room);
  return CUDA_SUCCESS;
}

// ---- handles ----

HandleMemory::Result HandleMemory::Create(Handle* handle, std::uint64_t bytes, const CUmemAllocationProp* prop,
                                          unsigned long long flags) {
  if (!handle || !prop || flags != 0 || bytes == 0 || !Whole(bytes) || !Memory::IsMovable(*prop)) return std::nullopt;
  const Attachment* attachment = Attachment::Of(prop->location.id);
  if (!attachment || !attachment->Pager()) return std::nullopt;
  const Uncancelled uncancelled;
  Paging& paging = *attachment->Pager();
  last_device = paging.Device();
  auto made = std::make_unique<Memory>(paging, *prop, bytes);
  if (!made->Take() && !(paging.ReleaseAll() && made->Take())) {
    paging.Account().NoteRefused();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = reinterpret_cast<Handle>(made.get());
  const MutexLock lock(mutex_);
  memories_.emplace(*handle, std::move(made));
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::Release(Handle handle) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Memory* memory = Find(handle);
  if (!memory) return std::nullopt;
  --memory->handles;
  EndIfUnused(*memory);
  return CUDA_SUCCESS;
}

void HandleMemory::EndIfUnused(Memory& memory) {
  if (memory.handles > 0 || memory.mappings > 0) return;
  if (memory.Place() != 0) places_.erase(memory.Place());
  memory.End();
  memories_.erase(reinterpret_cast<Handle>(&memory));
}

HandleMemory::Result HandleMemory::Retain(Handle* handle, CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto at = Around(address);
  if (!handle || at == mappings_.end() || !at->second.memory) return std::nullopt;
  ++at->second.memory->handles;
  *handle = reinterpret_cast<Handle>(at->second.memory);
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::Properties(CUmemAllocationProp* prop, Handle handle) {
  const MutexLock lock(mutex_);
  const Memory* memory = Find(handle);
  if (!prop || !memory) return std::nullopt;
  *prop = memory->prop;
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::Export(void* shareable, Handle handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Memory* memory = Find(handle);
  if (!memory) return std::nullopt;
  if (!shareable || flags != 0 || memory->prop.requestedHandleTypes != type) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = MakeOnePiece(*memory);
  if (result == CUDA_SUCCESS)
    result = REAL(cuMemExportToShareableHandle)(shareable, memory->Pieces().front().first, type, flags);
  if (result == CUDA_SUCCESS) memory->NoteReason(wire::PinReason::kExported);
  return result;
}

CUresult HandleMemory::FixForMulticast(Handle handle, Handle* driver) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Memory* memory = Find(handle);
  *driver = handle;
  if (!memory) return CUDA_SUCCESS;
  const CUresult result = FixForMulticast(*memory);
  if (result == CUDA_SUCCESS) *driver = memory->Pieces().front().first;
  return result;
}

CUresult HandleMemory::FixForMulticastAt(CUdeviceptr address) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  const auto at = Around(address);
  return at == mappings_.end() || !at->second.memory ? CUDA_SUCCESS : FixForMulticast(*at->second.memory);
}

CUresult HandleMemory::FixForMulticast(Memory& memory) {
  const CUresult result = MakeOnePiece(memory);
  if (result == CUDA_SUCCESS) memory.NoteReason(wire::PinReason::kMulticast);
  return result;
}

CUresult HandleMemory::FixMemory(Memory& memory) {
  const CUdeviceptr place = memory.Place();
  const CUresult result = memory.Fix();
  if (result != CUDA_SUCCESS || place == 0) return result;
  places_.erase(place);
  if (memory.mappings > 0) mappings_.find(place)->second.held = &memory.paging;
  return result;
}

// Fixes it so that it has one handle of the driver's.
CUresult HandleMemory::MakeOnePiece(Memory& memory) {
  const CUresult result = FixMemory(memory);
  if (result != CUDA_SUCCESS || memory.Pieces().size() == 1) return result;
  CUdeviceptr mapped = 0;
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.memory == &memory) mapped = address;
  }
  return memory.mappings > 1 ? CUDA_ERROR_NOT_SUPPORTED : memory.MakeOnePiece(mapped);
}

// The addresses are needed for something else: memory that lies there, and is not mapped, leaves them.
CUresult HandleMemory::FixUnmapped(const Range& range) {
  std::vector<Memory*> there;
  for (auto& [place, memory] : places_) {
    if (place < range.begin + range.bytes && range.begin < place + memory->bytes && memory->mappings == 0)
      there.push_back(memory);
  }
  for (Memory* memory : there) {
    if (const CUresult result = FixMemory(*memory); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// ---- mappings ----

HandleMemory::Result HandleMemory::Map(CUdeviceptr address, std::uint64_t bytes, std::uint64_t offset, Handle handle,
                                       unsigned long long flags) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Memory* memory = Find(handle);
  Paging* paging = nullptr;
  const auto reserved = ReservedAt(address, &paging);
  if (!memory && !reserved) return std::nullopt;
  if (flags != 0 || bytes == 0 || !Whole(address) || !Whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  // As the driver says (H200, 580.159.04).
  if (memory && (offset != 0 || bytes != memory->bytes)) return CUDA_ERROR_NOT_SUPPORTED;
  if (reserved && address - reserved->begin > reserved->bytes - std::min(bytes, reserved->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings_.lower_bound(address);
  if (Around(address) != mappings_.end() || (next != mappings_.end() && next->first - address < bytes))
    return CUDA_ERROR_INVALID_VALUE;

  const Range range{address, bytes};
  CUresult result = CUDA_SUCCESS;
  if (memory && memory->Place() == address) {
    paging->Heap().Reserved().SetUnmapped(address, false);
    mappings_[address] = {.bytes = bytes, .memory = memory};
  } else if (result = reserved ? FixUnmapped(range) : CUDA_SUCCESS; result != CUDA_SUCCESS) {
    return result;
  } else if (memory && !memory->HasMemory() && reserved && paging == &memory->paging) {
    result = memory->MakeBlock(address);
    if (result == CUDA_SUCCESS) {
      places_.emplace(address, memory);
      mappings_[address] = {.bytes = bytes, .memory = memory};
    }
  } else {
    if (memory) result = FixMemory(*memory);
    if (result == CUDA_SUCCESS) result = MapDriver(memory, handle, offset, range, reserved ? paging : nullptr);
  }
  if (result == CUDA_SUCCESS && memory) ++memory->mappings;
  return result;
}

// Maps a handle of the driver's own, or what is fixed, in the reservation of `reserved` (null: in one of the driver's).
CUresult HandleMemory::MapDriver(Memory* memory, Handle handle, std::uint64_t offset, const Range& range,
                                 Paging* reserved) {
  if (reserved) {
    if (const CUresult held = Hold(*reserved, range); held != CUDA_SUCCESS) return held;
    Reservations& all = reserved->Heap().Reserved();
    for (const auto& part : all.PartsOf(range)) GiveRoom(*reserved, all.Clear(part.begin));
  }
  Reservations::Pieces pieces{{handle, range.bytes}};
  if (memory) pieces = memory->Pieces();
  CUresult result = CUDA_SUCCESS;
  std::uint64_t mapped = 0;
  for (const auto& [piece, bytes] : pieces) {
    result = REAL(cuMemMap)(range.begin + mapped, bytes, offset, piece, 0);
    if (result != CUDA_SUCCESS) break;
    mapped += bytes;
  }
  if (result == CUDA_SUCCESS) {
    mappings_[range.begin] = {.bytes = range.bytes, .memory = memory, .held = reserved};
    return result;
  }
  if (mapped > 0) REAL(cuMemUnmap)(range.begin, mapped);
  if (reserved) LetGo(*reserved, range);
  return result;
}

HandleMemory::Result HandleMemory::Unmap(CUdeviceptr address, std::uint64_t bytes, DriverUnmap driver) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Paging* paging = nullptr;
  const auto reserved = ReservedAt(address, &paging);
  if (!reserved) return std::nullopt;
  const auto before = Around(address);
  const auto last = bytes == 0 ? mappings_.end() : Around(address + bytes - 1);
  const bool cut = (before != mappings_.end() && before->first != address) ||
                   (last != mappings_.end() && last->first + last->second.bytes != address + bytes);
  if (cut || bytes == 0 || bytes > reserved->begin + reserved->bytes - address) return CUDA_ERROR_INVALID_VALUE;
  for (auto at = mappings_.lower_bound(address); at != mappings_.end() && at->first - address < bytes;) {
    const auto mapping = at++;
    if (!IsBlock(*mapping)) {
      const auto unmap = mapping->second.memory ? REAL(cuMemUnmap) : driver;
      if (const CUresult result = unmap(mapping->first, mapping->second.bytes); result != CUDA_SUCCESS) return result;
    }
    EndMapping(mapping);
  }
  return CUDA_SUCCESS;
}

void HandleMemory::NoteUnmapped(CUdeviceptr address, std::uint64_t bytes) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  for (auto at = mappings_.lower_bound(address); at != mappings_.end() && at->first - address < bytes;)
    EndMapping(at++);
}

void HandleMemory::EndMapping(Mappings::iterator mapping) {
  const bool is_block = IsBlock(*mapping);
  const Range range{mapping->first, mapping->second.bytes};
  Memory* memory = mapping->second.memory;
  if (mapping->second.held) LetGo(*mapping->second.held, range);
  mappings_.erase(mapping);
  if (!memory) return;
  --memory->mappings;
  if (is_block && memory->handles > 0) memory->paging.Heap().Reserved().SetUnmapped(range.begin, true);
  EndIfUnused(*memory);
}

// ---- access ----

HandleMemory::Result HandleMemory::SetAccess(CUdeviceptr address, std::uint64_t bytes, const CUmemAccessDesc* accesses,
                                             std::size_t count) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Paging* paging = nullptr;
  if (!ReservedAt(address, &paging)) return std::nullopt;
  if (!accesses || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto first = mappings_.find(address);
  std::uint64_t end = address;
  for (auto at = first; at != mappings_.end() && at->first == end && end - address < bytes; ++at)
    end += at->second.bytes;
  if (end - address != bytes) return CUDA_ERROR_INVALID_VALUE;  // as the driver says of holes and of parts
  for (auto at = first; at != mappings_.end() && at->first < end; ++at) {
    if (!IsBlock(*at)) {
      const CUresult result = REAL(cuMemSetAccess)(at->first, at->second.bytes, accesses, count);
      if (result != CUDA_SUCCESS) return result;
      continue;
    }
    for (const CUmemAccessDesc& access : std::span(accesses, count)) {
      if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
      // Its own device reaches it anyway; another one reaches all of the heap from now on.
      if (access.location.id != paging->Device() && access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        if (const CUresult result = AddPeer(*paging, access.location.id); result != CUDA_SUCCESS) return result;
      }
      at->second.access[access.location.id] = static_cast<unsigned long long>(access.flags);
    }
  }
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::GetAccess(unsigned long long* flags, const CUmemLocation* location,
                                             CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto at = Around(address);
  if (!flags || !location || at == mappings_.end() || !IsBlock(*at)) return std::nullopt;
  const auto access = at->second.access.find(location->id);
  const bool known = location->type == CU_MEM_LOCATION_TYPE_DEVICE && access != at->second.access.end();
  *flags = known ? access->second : 0;
  return CUDA_SUCCESS;
}

unsigned long long HandleMemory::HandleTypesAt(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  const auto at = Around(address);
  return at == mappings_.end() || !at->second.memory
             ? 0
             : static_cast<unsigned long long>(at->second.memory->prop.requestedHandleTypes);
}

}  // namespace tessera::shim
