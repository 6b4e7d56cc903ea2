#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "cuda/cuda_abi.h"
#include "soft/ptx/ptx.h"

namespace tessera::soft {

class Context;

enum class MemoryKind {
  kDevice,       // cuMemAlloc, pools, graphs, module variables
  kManaged,      // cuMemAllocManaged
  kHost,         // cuMemAllocHost, cuMemHostAlloc
  kRegistered,   // cuMemHostRegister
  kVirtual,      // cuMemMap of device memory, with access for a device
  kVirtualHost,  // the same of host memory
  kImported,     // cuIpcOpenMemHandle
};

// Memory that kernels may touch. Device addresses are host addresses.
struct Mapping {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  Context* context = nullptr;
  int device = 0;
  std::uint64_t id = 0;  // unique in this process: CU_POINTER_ATTRIBUTE_BUFFER_ID
  unsigned flags = 0;    // as given to the call that made it
  cuda::CUmemoryPool pool = nullptr;
  bool sync_memops = false;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS

  // Neither needs the PCIe link to be read by a kernel nor is written to by the host without a copy.
  bool OnDevice() const {
    return kind == MemoryKind::kDevice || kind == MemoryKind::kVirtual || kind == MemoryKind::kImported;
  }
};

// All memory of this process that the soft GPUs know. Thread-safe.
class AddressMap : public ptx::AddressSpace {
 public:
  static AddressMap& Get();  // the process's one

  ptx::Range Find(std::uint64_t address) override;
  // The mapping that `address` lies in.
  std::optional<Mapping> Lookup(std::uint64_t address) const;
  // All of [address, address + bytes) lies in memory known here (not necessarily one mapping).
  bool Covers(std::uint64_t address, std::uint64_t bytes) const;

  // Sets mapping.id. False, and nothing changes, if it overlaps another.
  bool Insert(Mapping mapping);
  // Removes the mapping that begins at `address`; nullopt if none does.
  std::optional<Mapping> Remove(std::uint64_t address);
  // Sets the attribute of the mapping that `address` lies in.
  void SetSyncMemops(std::uint64_t address, bool on);
  std::vector<Mapping> OfContext(const Context* context) const;

  // A thread that does GPU work holds Kernels in each step of it (memory_steps.h); whoever takes memory away holds
  // Changes while it does, so that no kernel touches what is gone. Changes waits for steps, never for whole work.
  class Kernels {
   public:
    // No analysis: what one function locks the other unlocks.
    Kernels() TESSERA_NO_THREAD_SAFETY_ANALYSIS;
    ~Kernels() TESSERA_NO_THREAD_SAFETY_ANALYSIS;
    Kernels(const Kernels&) = delete;
  };
  class Changes {
   public:
    Changes() TESSERA_NO_THREAD_SAFETY_ANALYSIS;
    ~Changes() TESSERA_NO_THREAD_SAFETY_ANALYSIS;
  };

 private:
  mutable SharedMutex mutex_;
  std::map<std::uint64_t, Mapping> mappings_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t next_id_ TESSERA_GUARDED_BY(mutex_) = 1;

  // Guards the memory itself. Shared: a kernel runs; exclusive: memory goes away.
  SharedMutex running_;
  std::atomic<int> changes_wanted_ = 0;  // kernels let changes go first
};

}  // namespace tessera::soft
