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

// The answer about an address where nothing is mapped, in a reservation of ours: a piece of memory whose handle is
// still there may lie there all the same. As the driver says (H200, 580.159.04).
HandleMemory::Result NotMapped(CUdeviceptr address) {
  Paging* paging = nullptr;
  return ReservedAt(address, &paging) ? HandleMemory::Result(CUDA_ERROR_INVALID_VALUE) : std::nullopt;
}

// Notes who may reach memory by one mapping. Where that is a block, its own device reaches it anyway, and another one
// reaches all of the heap from now on.
CUresult NoteAccess(Paging& paging, std::span<const CUmemAccessDesc> accesses, bool is_block,
                    HandleTable::Mapping& mapping) {
  for (const CUmemAccessDesc& access : accesses) {
    const bool of_device = access.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (!of_device && is_block) return CUDA_ERROR_NOT_SUPPORTED;
    if (!of_device) continue;
    if (is_block && !MayReach(paging, access.location.id)) return CUDA_ERROR_INVALID_VALUE;
    if (is_block && access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
      if (const CUresult result = AddPeer(paging, access.location.id); result != CUDA_SUCCESS) return result;
    }
    mapping.access[access.location.id] = static_cast<unsigned long long>(access.flags);
  }
  return CUDA_SUCCESS;
}

// Whether HandleTable::Mapping::access says who may reach it.
bool KeepsAccess(const HandleTable::Mappings::value_type& mapping) {
  return mapping.second.memory != nullptr && (mapping.second.held != nullptr || HandleTable::IsBlock(mapping));
}

unsigned long long AccessOf(const HandleTable::Mapping& mapping, const CUmemLocation& location) {
  const auto access = mapping.access.find(location.id);
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && access != mapping.access.end() ? access->second : 0;
}

}  // namespace

std::optional<CUresult> ReserveAddresses(CUdeviceptr* address, std::uint64_t bytes, std::uint64_t alignment,
                                         CUdeviceptr hint, unsigned long long flags) {
  const bool right = address != nullptr && bytes > 0 && Whole(bytes) && (alignment & (alignment - 1)) == 0;
  if (!right || flags != 0 || hint != 0 || alignment > Reservations::kAlignment) return std::nullopt;
  Paging* paging = LikelyPaging();
  if (!paging) return std::nullopt;
  std::uint64_t room = 0;
  const CUresult result = paging->Heap().Reserved().Reserve(bytes, alignment, address, &room);
  GiveRoom(*paging, room);
  return result == CUDA_SUCCESS ? std::optional(result) : std::nullopt;  // the driver may have more
}

HandleMemory& HandleMemory::Instance() {
  static auto* memory = new HandleMemory;
  return *memory;
}

// ---- what is in hand ----

// Returns when no other thread has these addresses, or memory that is mapped there, in hand.
void HandleMemory::Await(const Range& range) {
  while (in_hand_.Has(table_.MappedIn(range))) in_hand_.Wait(mutex_);
}

// The same of a handle.
HandleMemory::Memory* HandleMemory::FindFree(Handle handle) {
  Memory* memory = table_.Find(handle);
  for (; memory && in_hand_.Has({.memories = {memory}, .range = {}}); memory = table_.Find(handle))
    in_hand_.Wait(mutex_);
  return memory;
}

void HandleMemory::LetGoOf(const InHand::Things& things) {
  in_hand_.LetGo(things);
  // Their handles may have been released meanwhile.
  for (Memory* memory : things.memories) table_.EndIfUnused(*memory);
}

template <typename Act>
CUresult HandleMemory::WithInHand(Memory& memory, Act act) {
  const InHand::Things things{.memories = {&memory}, .range = {}};
  in_hand_.Take(things);
  const CUresult result = act();
  LetGoOf(things);
  return result;
}

template <typename Act>
CUresult HandleMemory::WithoutMutex(Act act) {
  mutex_.Unlock();
  const CUresult result = act();
  mutex_.Lock();
  return result;
}

// ---- addresses ----

HandleMemory::Result HandleMemory::FreeAddresses(CUdeviceptr address, std::uint64_t bytes) {
  Paging* paging = nullptr;
  const auto range = ReservedAt(address, &paging);
  if (!range) return std::nullopt;
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  InHand::Things there = table_.UnmappedIn(*range);
  for (; in_hand_.Has(there); there = table_.UnmappedIn(*range)) in_hand_.Wait(mutex_);
  if (range->begin != address || range->bytes != bytes || !table_.IsFree(*range)) return CUDA_ERROR_INVALID_VALUE;
  in_hand_.Take(there);
  const CUresult fixed = FixUnmapped(*range);
  LetGoOf(there);
  if (fixed != CUDA_SUCCESS) return fixed;
  std::uint64_t room = 0;
  if (!paging->Heap().Reserved().Free(*range, &room)) return CUDA_ERROR_INVALID_VALUE;  // another thread did
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
  const MutexLock lock(mutex_);
  *handle = table_.Add(std::move(made));
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::Release(Handle handle) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Memory* memory = table_.Find(handle);
  if (!memory) return std::nullopt;
  --memory->handles;
  if (!in_hand_.Has({.memories = {memory}, .range = {}})) table_.EndIfUnused(*memory);
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::Retain(Handle* handle, CUdeviceptr address) {
  const MutexLock lock(mutex_);
  Await({address, 1});
  const auto at = table_.Around(address);
  if (at == table_.All().end()) return NotMapped(address);
  if (!handle || !at->second.memory) return std::nullopt;
  ++at->second.memory->handles;
  *handle = reinterpret_cast<Handle>(at->second.memory);
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::Properties(CUmemAllocationProp* prop, Handle handle) {
  const MutexLock lock(mutex_);
  const Memory* memory = table_.Find(handle);
  if (!prop || !memory) return std::nullopt;
  *prop = memory->prop;
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::Export(void* shareable, Handle handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Memory* memory = FindFree(handle);
  if (!memory) return std::nullopt;
  if (!shareable || flags != 0 || memory->prop.requestedHandleTypes != type) return CUDA_ERROR_INVALID_VALUE;
  return WithInHand(*memory, [&]() TESSERA_REQUIRES(mutex_) {
    CUresult result = MakeOnePiece(*memory);
    if (result == CUDA_SUCCESS)
      result = REAL(cuMemExportToShareableHandle)(shareable, memory->Pieces().front().first, type, flags);
    if (result == CUDA_SUCCESS) memory->NoteReason(wire::PinReason::kExported);
    return result;
  });
}

CUresult HandleMemory::FixForMulticast(Handle handle, Handle* driver) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Memory* memory = FindFree(handle);
  *driver = handle;
  return memory ? FixForMulticast(*memory, driver) : CUDA_SUCCESS;
}

CUresult HandleMemory::FixForMulticastAt(CUdeviceptr address) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Await({address, 1});
  const auto at = table_.Around(address);
  Handle ignored = 0;
  return at == table_.All().end() || !at->second.memory ? CUDA_SUCCESS : FixForMulticast(*at->second.memory, &ignored);
}

CUresult HandleMemory::FixForMulticast(Memory& memory, Handle* driver) {
  return WithInHand(memory, [&]() TESSERA_REQUIRES(mutex_) {
    const CUresult result = MakeOnePiece(memory);
    if (result != CUDA_SUCCESS) return result;
    memory.NoteReason(wire::PinReason::kMulticast);
    *driver = memory.Pieces().front().first;
    return result;
  });
}

void HandleMemory::NoteInDevice(CUdeviceptr address, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  Await({address, bytes});
  for (Memory* memory : table_.MappedIn({address, bytes}).memories) memory->in_device = true;
}

CUresult HandleMemory::FixMemory(Memory& memory) {
  const CUdeviceptr place = memory.Place();
  const auto block = place == 0 ? std::nullopt : memory.paging.Heap().Find(place);
  const CUresult result = WithoutMutex([&] { return memory.Fix(); });
  if (result != CUDA_SUCCESS || !block) return result;
  table_.EndBlock(place, memory, block->id);
  return result;
}

// Fixes it so that it has one handle of the driver's.
CUresult HandleMemory::MakeOnePiece(Memory& memory) {
  const CUresult result = FixMemory(memory);
  if (result != CUDA_SUCCESS || memory.Pieces().size() == 1) return result;
  if (memory.mappings > 1) return CUDA_ERROR_NOT_SUPPORTED;
  const CUdeviceptr mapped = table_.PlaceOf(memory);
  return WithoutMutex([&] { return memory.MakeOnePiece(mapped); });
}

// The addresses are needed for something else: memory that lies there, and is not mapped, leaves them.
CUresult HandleMemory::FixUnmapped(const Range& range) {
  for (Memory* memory : table_.UnmappedIn(range).memories) {
    if (const CUresult result = FixMemory(*memory); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// ---- mappings ----

HandleMemory::Result HandleMemory::Map(CUdeviceptr address, std::uint64_t bytes, std::uint64_t offset, Handle handle,
                                       unsigned long long flags) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  const Range range{address, bytes};
  Memory* memory = nullptr;
  InHand::Things things;
  for (;;) {
    memory = table_.Find(handle);
    things = table_.UnmappedIn(range, memory);
    if (!in_hand_.Has(things)) break;
    in_hand_.Wait(mutex_);
  }
  Paging* paging = nullptr;
  const auto reserved = ReservedAt(address, &paging);
  if (!memory && !reserved) return std::nullopt;
  if (flags != 0 || bytes == 0 || !Whole(address) || !Whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  // As the driver says (H200, 580.159.04).
  if (memory && (offset != 0 || bytes != memory->bytes)) return CUDA_ERROR_NOT_SUPPORTED;
  if (reserved && address - reserved->begin > reserved->bytes - std::min(bytes, reserved->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (!table_.IsFree(range)) return CUDA_ERROR_INVALID_VALUE;

  in_hand_.Take(things);
  const CUresult result = MapInHand(memory, handle, offset, range, reserved ? paging : nullptr);
  if (result == CUDA_SUCCESS && memory) ++memory->mappings;
  LetGoOf(things);
  return result;
}

CUresult HandleMemory::MapInHand(Memory* memory, Handle handle, std::uint64_t offset, const Range& range,
                                 Paging* reserved) {
  const HandleTable::Mapping block{.bytes = range.bytes, .memory = memory};
  if (memory && memory->Place() == range.begin) {
    memory->paging.Heap().Reserved().SetUnmapped(range.begin, false);
    table_.All()[range.begin] = block;
    return CUDA_SUCCESS;
  }
  CUresult result = reserved ? FixUnmapped(range) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  if (memory && !memory->HasMemory() && reserved == &memory->paging) {
    result = WithoutMutex([&] { return memory->MakeBlock(range.begin); });
    if (result != CUDA_SUCCESS) return result;
    table_.AddBlock(range.begin, memory);
    table_.All()[range.begin] = block;
    return CUDA_SUCCESS;
  }
  if (memory) result = FixMemory(*memory);
  return result == CUDA_SUCCESS ? MapDriver(memory, handle, offset, range, reserved) : result;
}

// Maps a handle of the driver's own, or what is fixed, in the reservation of `reserved` (null: in one of the driver's).
CUresult HandleMemory::MapDriver(Memory* memory, Handle handle, std::uint64_t offset, const Range& range,
                                 Paging* reserved) {
  if (reserved) {
    const CUresult held = WithoutMutex([&] { return Hold(*reserved, range); });
    if (held != CUDA_SUCCESS) return held;
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
    table_.AddMapping(range, memory, reserved);
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
  Await({address, bytes});
  const auto before = table_.Around(address);
  const auto last = bytes == 0 ? table_.All().end() : table_.Around(address + bytes - 1);
  const bool cut = (before != table_.All().end() && before->first != address) ||
                   (last != table_.All().end() && last->first + last->second.bytes != address + bytes);
  if (cut || bytes == 0 || bytes > reserved->begin + reserved->bytes - address) return CUDA_ERROR_INVALID_VALUE;
  for (auto at = table_.All().lower_bound(address); at != table_.All().end() && at->first - address < bytes;) {
    const auto mapping = at++;
    if (!HandleTable::IsBlock(*mapping)) {
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
  Await({address, bytes});
  for (auto at = table_.All().lower_bound(address); at != table_.All().end() && at->first - address < bytes;)
    EndMapping(at++);
}

void HandleMemory::EndMapping(HandleTable::Mappings::iterator mapping) {
  const bool is_block = HandleTable::IsBlock(*mapping);
  const Range range{mapping->first, mapping->second.bytes};
  Memory* memory = mapping->second.memory;
  if (mapping->second.held) LetGo(*mapping->second.held, range);
  table_.All().erase(mapping);
  if (!memory) return;
  --memory->mappings;
  if (is_block && memory->handles > 0) memory->paging.Heap().Reserved().SetUnmapped(range.begin, true);
  table_.EndIfUnused(*memory);
}

// ---- access ----

HandleMemory::Result HandleMemory::SetAccess(CUdeviceptr address, std::uint64_t bytes, const CUmemAccessDesc* accesses,
                                             std::size_t count) {
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  Paging* paging = nullptr;
  if (!ReservedAt(address, &paging)) return std::nullopt;
  if (!accesses || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Await({address, bytes});
  const auto mappings = table_.WholeIn({address, bytes});
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;  // as the driver says of holes and of parts
  for (const auto at : mappings) {
    const bool is_block = HandleTable::IsBlock(*at);
    CUresult result = is_block ? CUDA_SUCCESS : REAL(cuMemSetAccess)(at->first, at->second.bytes, accesses, count);
    if (result == CUDA_SUCCESS) result = NoteAccess(*paging, {accesses, count}, is_block, at->second);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

HandleMemory::Result HandleMemory::GetAccess(unsigned long long* flags, const CUmemLocation* location,
                                             CUdeviceptr address) {
  const MutexLock lock(mutex_);
  Await({address, 1});
  const auto at = table_.Around(address);
  if (at == table_.All().end()) return NotMapped(address);
  if (!flags || !location || !KeepsAccess(*at)) return std::nullopt;
  *flags = AccessOf(at->second, *location);
  return CUDA_SUCCESS;
}

std::optional<HandleTable::Mapped> HandleMemory::MappedAt(CUdeviceptr address) {
  const MutexLock lock(mutex_);
  Await({address, 1});
  return table_.MappedAt(address);
}

}  // namespace tessera::shim
