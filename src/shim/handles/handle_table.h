#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/cuda_abi.h"
#include "pager/heap/reservations.h"
#include "shim/handles/in_hand.h"
#include "shim/handles/physical_memory.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

// Which memory by handle there is, where its blocks are, and what is mapped at which addresses. HandleMemory's mutex
// guards it.
class HandleTable {
 public:
  using Handle = cuda::CUmemGenericAllocationHandle;
  using Range = pager::Reservations::Range;
  struct Mapping {
    std::uint64_t bytes = 0;
    PhysicalMemory* memory = nullptr;                          // null: a handle of the driver's own
    Paging* held = nullptr;                                    // whose chunks are held there
    std::uint64_t id = 0;                                      // where it is fixed; else its block has one
    std::map<cuda::CUdevice, unsigned long long> access = {};  // flags, of our handles in our reservations
  };
  using Mappings = std::map<cuda::CUdeviceptr, Mapping>;

  static bool IsBlock(const Mappings::value_type& mapping) {
    return mapping.second.memory != nullptr && mapping.second.memory->Place() == mapping.first;
  }

  // A mapping, as a program may ask about it.
  struct Mapped {
    cuda::CUdeviceptr begin = 0;
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;                           // CU_POINTER_ATTRIBUTE_BUFFER_ID, where it is fixed
    std::optional<cuda::CUmemAllocationProp> prop;  // none: a handle of the driver's own
  };

  // The memory that a program still has this handle of; or null.
  PhysicalMemory* Find(Handle handle) const;
  Handle Add(std::unique_ptr<PhysicalMemory> memory);
  // Ends the memory if it has no handles and no mappings.
  void EndIfUnused(PhysicalMemory& memory);

  // The memory has become a block there.
  void AddBlock(cuda::CUdeviceptr place, PhysicalMemory* memory) { blocks_.emplace(place, memory); }
  // It is none any more, but fixed. If it is mapped, the mapping keeps the block's id.
  void EndBlock(cuda::CUdeviceptr place, PhysicalMemory& memory, std::uint64_t id);
  // Fixed memory, or a handle of the driver's own, is mapped.
  void AddMapping(const Range& range, PhysicalMemory* memory, Paging* held);

  // Of our handles anywhere, and of any in our reservations.
  Mappings& All() { return mappings_; }
  // The mapping that `address` lies in, or the end.
  Mappings::iterator Around(cuda::CUdeviceptr address);
  std::optional<Mapped> MappedAt(cuda::CUdeviceptr address);
  // The mappings that make up exactly these bytes; none if there is a hole, or a part of one.
  std::vector<Mappings::iterator> WholeIn(const Range& range);
  // Whether nothing is mapped there.
  bool IsFree(const Range& range);
  // Where the memory is mapped; 0 if it is not.
  cuda::CUdeviceptr PlaceOf(const PhysicalMemory& memory) const;
  // These addresses, with the memory that is mapped there, or whose block lies there and is not mapped.
  InHand::Things MappedIn(const Range& range);
  // Beside that, `also`, unless that is null.
  InHand::Things UnmappedIn(const Range& range, PhysicalMemory* also = nullptr) const;

 private:
  std::map<Handle, std::unique_ptr<PhysicalMemory>> memories_;
  std::map<cuda::CUdeviceptr, PhysicalMemory*> blocks_;
  Mappings mappings_;
  std::uint64_t next_id_ = 1ull << 61;  // not one of a block, nor of an import
};

}  // namespace tessera::shim
