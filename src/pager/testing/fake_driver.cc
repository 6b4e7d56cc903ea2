#include "pager/testing/fake_driver.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdlib>
#include <iterator>

namespace tessera::pager {

using namespace cuda;

namespace {
FakeDriver* the_driver = nullptr;
}

// The functions themselves. A complaint comes back as an error, as the real driver would say it.
struct FakeDriver::Calls_ {
  static CUresult AddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                                 unsigned long long) {
    const MutexLock lock(the_driver->mutex_);
    if (the_driver->Fails()) return CUDA_ERROR_UNKNOWN;
    CUdeviceptr& next = the_driver->next_address_;
    if (alignment == 0) alignment = 2u << 20;  // the driver chooses one
    next = (next + alignment - 1) / alignment * alignment;
    *address = next;
    next += bytes;
    the_driver->reserved_.emplace(*address, bytes);
    return CUDA_SUCCESS;
  }

  static CUresult AddressFree(CUdeviceptr address, std::size_t bytes) {
    const MutexLock lock(the_driver->mutex_);
    const auto at = the_driver->reserved_.find(address);
    if (at == the_driver->reserved_.end() || at->second != bytes)
      return the_driver->Complain("frees addresses that are not reserved");
    const auto mapped = the_driver->mappings_.lower_bound(address);
    if (mapped != the_driver->mappings_.end() && mapped->first < address + bytes)
      return the_driver->Complain("frees addresses with memory");
    the_driver->reserved_.erase(at);
    return CUDA_SUCCESS;
  }

  static CUresult Create(Driver::Handle* handle, std::size_t bytes, const CUmemAllocationProp* prop,
                         unsigned long long) {
    const MutexLock lock(the_driver->mutex_);
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || bytes == 0)
      return the_driver->Complain("creates no memory of a GPU");
    if (the_driver->Fails()) return CUDA_ERROR_UNKNOWN;
    if (bytes > the_driver->capacity_ - the_driver->device_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
    auto memory = std::make_unique<Memory>();
    memory->id = the_driver->next_++;
    memory->bytes = bytes;
    memory->words[0] = 0xdead0000 + memory->id;  // what somebody left
    the_driver->device_bytes_ += bytes;
    *handle = the_driver->HandleOf(*memory);
    the_driver->memories_.emplace(memory->id, std::move(memory));
    return CUDA_SUCCESS;
  }

  static CUresult Release(Driver::Handle handle) {
    const MutexLock lock(the_driver->mutex_);
    Memory* memory = the_driver->MemoryOf(handle);
    if (!memory) return the_driver->Complain("releases an unknown handle");
    the_driver->handles_.erase(handle);
    the_driver->imported_.erase(handle);
    --memory->handles;
    the_driver->ReleaseIfUnused(*memory);
    return CUDA_SUCCESS;
  }

  static CUresult Map(CUdeviceptr address, std::size_t bytes, std::size_t offset, Driver::Handle handle,
                      unsigned long long) {
    const MutexLock lock(the_driver->mutex_);
    Memory* memory = the_driver->MemoryOf(handle);
    if (!memory) return the_driver->Complain("maps an unknown handle");
    if (offset != 0 || bytes != memory->bytes) return the_driver->Complain("maps a part of memory");
    auto reserved = the_driver->reserved_.upper_bound(address);
    if (reserved == the_driver->reserved_.begin() ||
        address + bytes > std::prev(reserved)->first + std::prev(reserved)->second)
      return the_driver->Complain("maps where nothing is reserved");
    const auto next = the_driver->mappings_.lower_bound(address);
    if ((next != the_driver->mappings_.end() && next->first < address + bytes) ||
        (next != the_driver->mappings_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address))
      return the_driver->Complain("maps where something is mapped");
    if (the_driver->Fails()) return CUDA_ERROR_UNKNOWN;
    ++memory->mappings;
    the_driver->mappings_.emplace(address, Mapping{.bytes = bytes, .memory = memory, .access = {}});
    return CUDA_SUCCESS;
  }

  static CUresult Unmap(CUdeviceptr address, std::size_t bytes) {
    const MutexLock lock(the_driver->mutex_);
    if (the_driver->on_unmap_) the_driver->on_unmap_();
    // Any number of whole mappings, one beside the other.
    std::vector<std::map<CUdeviceptr, Mapping>::iterator> gone;
    for (CUdeviceptr end = address; end < address + bytes; end += gone.back()->second.bytes) {
      const auto at = the_driver->mappings_.find(end);
      if (at == the_driver->mappings_.end() || at->second.bytes > address + bytes - end)
        return the_driver->Complain("unmaps what is not mapped so");
      gone.push_back(at);
    }
    for (const auto at : gone) {
      Memory* memory = at->second.memory;
      the_driver->mappings_.erase(at);
      --memory->mappings;
      the_driver->ReleaseIfUnused(*memory);
    }
    return CUDA_SUCCESS;
  }

  static CUresult SetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
    const MutexLock lock(the_driver->mutex_);
    std::vector<Mapping*> reached;
    for (CUdeviceptr at = address; at < address + bytes; at += reached.back()->bytes) {
      const auto mapping = the_driver->mappings_.find(at);
      if (mapping == the_driver->mappings_.end() || at + mapping->second.bytes > address + bytes)
        return the_driver->Complain("lets a GPU reach what is not mapped");
      reached.push_back(&mapping->second);
    }
    if (the_driver->Fails()) return CUDA_ERROR_UNKNOWN;
    for (Mapping* mapping : reached) {
      for (std::size_t i = 0; i < count; ++i) mapping->access.insert(access[i].location.id);
    }
    return CUDA_SUCCESS;
  }

  static CUresult Export(void* fd, Driver::Handle handle, CUmemAllocationHandleType type, unsigned long long) {
    const MutexLock lock(the_driver->mutex_);
    Memory* memory = the_driver->MemoryOf(handle);
    if (!memory || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return the_driver->Complain("exports an unknown handle");
    if (the_driver->imported_.contains(handle)) return the_driver->Complain("exports what was imported");
    if (the_driver->Fails()) return CUDA_ERROR_UNKNOWN;
    *static_cast<int*>(fd) = the_driver->FileOf(*memory).Release();
    return CUDA_SUCCESS;
  }

  static CUresult Import(Driver::Handle* handle, void* fd, CUmemAllocationHandleType) {
    const MutexLock lock(the_driver->mutex_);
    Memory* memory = the_driver->MemoryOf(static_cast<int>(reinterpret_cast<std::uintptr_t>(fd)));
    if (!memory || the_driver->Fails()) return CUDA_ERROR_INVALID_VALUE;
    *handle = the_driver->HandleOf(*memory, true);
    return CUDA_SUCCESS;
  }
};

FakeDriver::FakeDriver() { the_driver = this; }
FakeDriver::~FakeDriver() { the_driver = nullptr; }

const Driver& FakeDriver::Functions() const {
  static constexpr Driver kFunctions = {Calls_::AddressReserve, Calls_::AddressFree, Calls_::Create,
                                        Calls_::Release,        Calls_::Map,         Calls_::Unmap,
                                        Calls_::SetAccess,      Calls_::Export,      Calls_::Import};
  return kFunctions;
}

// ---- what tests ask and do ----

void FakeDriver::FailCall(std::uint64_t number, std::uint64_t times) {
  const MutexLock lock(mutex_);
  calls_ = 0;
  fail_from_ = number;
  fail_to_ = number + times;
}

std::uint64_t FakeDriver::Calls() const {
  const MutexLock lock(mutex_);
  return calls_;
}

void FakeDriver::SetCapacity(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  capacity_ = bytes;
}

std::vector<std::string> FakeDriver::Complaints() const {
  const MutexLock lock(mutex_);
  return complaints_;
}

std::uint64_t FakeDriver::Handles() const {
  const MutexLock lock(mutex_);
  return handles_.size();
}

std::uint64_t FakeDriver::Mappings() const {
  const MutexLock lock(mutex_);
  return mappings_.size();
}

std::uint64_t FakeDriver::DeviceBytes() const {
  const MutexLock lock(mutex_);
  return device_bytes_;
}

std::map<CUdeviceptr, FakeDriver::Mapping>::const_iterator FakeDriver::Around(CUdeviceptr address) const {
  auto at = mappings_.upper_bound(address);
  if (at == mappings_.begin()) return mappings_.end();
  --at;
  return address - at->first < at->second.bytes ? at : mappings_.end();
}

bool FakeDriver::Valid(CUdeviceptr address, const std::set<CUdevice>& devices) const {
  const MutexLock lock(mutex_);
  const auto at = Around(address);
  return at != mappings_.end() && at->second.access == devices;
}

void FakeDriver::Write(CUdeviceptr address, std::uint64_t word) {
  const MutexLock lock(mutex_);
  const auto at = Around(address);
  if (at == mappings_.end() || at->second.access.empty()) {
    Complain("a kernel writes to an address without memory");
  } else {
    at->second.memory->words[address - at->first] = word;
  }
}

std::uint64_t FakeDriver::Read(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  const auto at = Around(address);
  if (at == mappings_.end() || at->second.access.empty()) return ~std::uint64_t{0};
  const auto word = at->second.memory->words.find(address - at->first);
  return word == at->second.memory->words.end() ? 0 : word->second;
}

Driver::Handle FakeDriver::MakeForMover(std::uint64_t bytes, bool host, const Words& words, UniqueFd* fd) {
  const MutexLock lock(mutex_);
  auto memory = std::make_unique<Memory>();
  memory->id = next_++;
  memory->bytes = bytes;
  memory->host = host;
  memory->words = words;
  if (!host) device_bytes_ += bytes;
  const Driver::Handle handle = HandleOf(*memory);
  *fd = FileOf(*memory);
  memories_.emplace(memory->id, std::move(memory));
  return handle;
}

Driver::Handle FakeDriver::ImportForMover(const UniqueFd& fd) {
  const MutexLock lock(mutex_);
  Memory* memory = MemoryOf(fd.Get());
  return memory ? HandleOf(*memory) : 0;
}

void FakeDriver::DropForMover(Driver::Handle handle) { Calls_::Release(handle); }

FakeDriver::Words FakeDriver::WordsOf(const UniqueFd& fd) const {
  const MutexLock lock(mutex_);
  const Memory* memory = MemoryOf(fd.Get());
  return memory ? memory->words : Words{};
}

FakeDriver::Words FakeDriver::WordsOf(Driver::Handle handle) const {
  const MutexLock lock(mutex_);
  const Memory* memory = MemoryOf(handle);
  return memory ? memory->words : Words{};
}

void FakeDriver::SetWords(const UniqueFd& fd, const Words& words) {
  const MutexLock lock(mutex_);
  if (const Memory* memory = MemoryOf(fd.Get())) const_cast<Memory*>(memory)->words = words;
}

// ---- with mutex_ held ----

CUresult FakeDriver::Complain(const std::string& what) {
  complaints_.push_back(what);
  return CUDA_ERROR_INVALID_VALUE;
}

bool FakeDriver::Fails() {
  ++calls_;
  return calls_ >= fail_from_ && calls_ < fail_to_;
}

FakeDriver::Memory* FakeDriver::MemoryOf(Driver::Handle handle) const {
  const auto at = handles_.find(handle);
  return at == handles_.end() ? nullptr : at->second;
}

FakeDriver::Memory* FakeDriver::MemoryOf(int fd) const {
  std::uint64_t id = 0;
  if (pread(fd, &id, sizeof id, 0) != sizeof id) return nullptr;
  const auto at = memories_.find(id);
  return at == memories_.end() ? nullptr : at->second.get();
}

Driver::Handle FakeDriver::HandleOf(Memory& memory, bool imported) {
  const Driver::Handle handle = 0x10000 + next_++;
  handles_.emplace(handle, &memory);
  if (imported) imported_.insert(handle);
  ++memory.handles;
  return handle;
}

UniqueFd FakeDriver::FileOf(Memory& memory) {
  if (!memory.file) {
    memory.file.Reset(memfd_create("memory", MFD_CLOEXEC));
    if (pwrite(memory.file.Get(), &memory.id, sizeof memory.id, 0) != sizeof memory.id) std::abort();
  }
  return UniqueFd(fcntl(memory.file.Get(), F_DUPFD_CLOEXEC, 0));
}

void FakeDriver::ReleaseIfUnused(Memory& memory) {
  if (memory.handles > 0 || memory.mappings > 0) return;
  if (memory.host && memory.file) return;  // a descriptor of it may be on its way to the mover
  if (!memory.host) device_bytes_ -= memory.bytes;
  memories_.erase(memory.id);
}

}  // namespace tessera::pager
