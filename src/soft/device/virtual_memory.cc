#include "soft/device/virtual_memory.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <set>
#include <string>

#include "soft/device/address_map.h"
#include "soft/device/context.h"
#include "soft/device/device.h"

namespace tessera::soft {
namespace {

using namespace cuda;

using Memories = Handles<PhysicalMemory, CUmemGenericAllocationHandle>;

void* Pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

bool Granular(std::uint64_t value) { return value % kVirtualGranule == 0; }

// Memory that nobody else will map comes out of one file of the process, since thousands of descriptors are more than a
// process may have. Offsets are never used twice: a file may be 8 EiB long, and a freed part is a hole.
class ProcessFile {
 public:
  static ProcessFile& Get() {
    static ProcessFile& file = *new ProcessFile;
    return file;
  }
  int fd() const { return fd_.Get(); }
  bool Take(std::uint64_t bytes, std::uint64_t* offset) {
    const MutexLock lock(mutex_);
    if (!fd_ || ftruncate(fd_.Get(), static_cast<off_t>(end_ + bytes)) != 0) return false;
    *offset = std::exchange(end_, end_ + bytes);
    return true;
  }
  void GiveBack(std::uint64_t offset, std::uint64_t bytes) {
    fallocate(fd_.Get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  }

 private:
  ProcessFile() : fd_(memfd_create("tessera-soft", MFD_CLOEXEC)) {}

  Mutex mutex_;
  const UniqueFd fd_;
  std::uint64_t end_ TESSERA_GUARDED_BY(mutex_) = 0;
};

// The name of an exported file tells the importer what it is: see memfd_create(2) and /proc/self/fd.
struct ExportName {
  unsigned long long memory = 0;  // SharedState::NewMemory, 0 for host memory
  int shared_index = -1;          // of its device; of host memory: of whose UUID the maker's current device has, or -1
  int location = 0;               // CUmemLocationType
  int direct = 0;                 // gpuDirectRDMACapable
};

constexpr const char* kExportName = "tessera-soft-memory-%llx-%d-%d-%d";

UniqueFd MakeExportFile(const ExportName& told) {
  char name[96];
  std::snprintf(name, sizeof name, kExportName, told.memory, told.shared_index, told.location, told.direct);
  return UniqueFd(memfd_create(name, MFD_CLOEXEC));
}

bool ReadExportName(int file, ExportName* told) {
  char target[128];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), target, sizeof target - 1);
  if (length <= 0) return false;
  target[length] = '\0';
  return std::sscanf(target, ("/memfd:" + std::string(kExportName)).c_str(), &told->memory, &told->shared_index,
                     &told->location, &told->direct) == 4;
}

// What was written of `from`, at the same places of `to`, which is new.
bool CopyFile(int from, int to, std::uint64_t bytes) {
  const auto end = static_cast<off_t>(bytes);
  if (ftruncate(to, end) != 0) return false;
  for (off_t at = lseek(from, 0, SEEK_DATA); at >= 0 && at < end; at = lseek(from, at, SEEK_DATA)) {
    const off_t hole = std::min(end, lseek(from, at, SEEK_HOLE));
    lseek(to, at, SEEK_SET);
    while (at < hole) {
      const ssize_t copied = sendfile(to, from, &at, static_cast<std::size_t>(hole - at));
      if (copied <= 0) return false;
    }
  }
  return true;
}

// A program that a restore put on another GPU knows its first ones only, by their UUIDs. Memory of the host belongs to
// the maker's device all the same: an H100 does not import that of a device it does not know (580.159.04).
bool KnowsMaker(const ExportName& told) {
  const auto& devices = Devices();
  const bool moved =
      std::ranges::any_of(devices, [](const auto& each) { return each->told_index() != each->shared_index(); });
  const auto is = [&](const auto& each) { return each->told_index() == told.shared_index; };
  return !moved || told.shared_index < 0 || std::ranges::any_of(devices, is);
}

SharedState& State() { return Devices().front()->state(); }

}  // namespace

bool OnHost(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

PhysicalMemory::~PhysicalMemory() {
  if (!own_file) ProcessFile::Get().GiveBack(offset, bytes);
  if (charged != nullptr) charged->Uncharge(bytes);
  if (hold != kNoHold) State().LetGo(hold);
}

VirtualMemory& VirtualMemory::Get() {
  static VirtualMemory& memory = *new VirtualMemory;
  return memory;
}

CUresult VirtualMemory::Reserve(std::uint64_t bytes, std::uint64_t alignment, CUdeviceptr hint, CUdeviceptr* address) {
  const std::uint64_t unit = std::max(alignment, kVirtualGranule);
  if (bytes == 0 || !Granular(bytes) || (unit & (unit - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  // The hint is a wish, as for a real driver.
  if (hint % unit == 0 && hint != 0) {
    void* wished =
        mmap(Pointer(hint), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (wished == Pointer(hint)) {
      const MutexLock lock(mutex_);
      reservations_.emplace(hint, bytes);
      *address = hint;
      return CUDA_SUCCESS;
    }
    if (wished != MAP_FAILED) munmap(wished, bytes);
  }
  void* memory = mmap(nullptr, bytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<std::uint64_t>(memory);
  const std::uint64_t aligned = (begin + unit - 1) / unit * unit;
  if (aligned != begin) munmap(memory, aligned - begin);
  munmap(Pointer(aligned + bytes), begin + unit - aligned);
  const MutexLock lock(mutex_);
  reservations_.emplace(aligned, bytes);
  *address = aligned;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Free(CUdeviceptr address, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto reservation = reservations_.find(address);
  if (reservation == reservations_.end() || reservation->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mappings_.lower_bound(address);
  if (mapped != mappings_.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  munmap(Pointer(address), bytes);
  reservations_.erase(reservation);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Create(std::uint64_t bytes, const CUmemAllocationProp& properties,
                               CUmemGenericAllocationHandle* handle) {
  const bool exportable = properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!exportable && properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  if (bytes == 0 || !Granular(bytes) || properties.type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  if (properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    device = DeviceOf(properties.location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  } else if (!OnHost(properties.location)) {
    return CUDA_ERROR_INVALID_VALUE;
  }

  auto memory = std::make_shared<PhysicalMemory>();
  if (exportable) {
    Context* const current = CurrentContext();
    const int maker = current ? current->device().told_index() : -1;
    const ExportName told = {.memory = device ? State().NewMemory() : 0,
                             .shared_index = device ? device->shared_index() : maker,
                             .location = properties.location.type,
                             .direct = properties.allocFlags.gpuDirectRDMACapable};
    if (device != nullptr) {
      memory->hold = State().Hold(told.shared_index, told.memory, bytes);
      if (memory->hold == kNoHold) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->own_file = MakeExportFile(told);
    memory->file = memory->own_file.Get();
    if (!memory->own_file || ftruncate(memory->file, static_cast<off_t>(bytes)) != 0)
      return CUDA_ERROR_OPERATING_SYSTEM;
  } else {
    memory->file = ProcessFile::Get().fd();
    if (!ProcessFile::Get().Take(bytes, &memory->offset)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory->bytes = bytes;
  memory->properties = properties;
  if (device != nullptr && !exportable) {
    if (!device->Charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    memory->charged = device;
  }
  *handle = Memories::Get().Add(std::move(memory));
  return CUDA_SUCCESS;
}

std::shared_ptr<PhysicalMemory> VirtualMemory::Find(CUmemGenericAllocationHandle handle) {
  return Memories::Get().Find(handle);
}

std::vector<std::shared_ptr<PhysicalMemory>> VirtualMemory::All() {
  const MutexLock lock(mutex_);
  const auto known = Memories::Get().All();
  std::set<std::shared_ptr<PhysicalMemory>> all(known.begin(), known.end());
  for (const auto& [address, mapped] : mappings_) all.insert(mapped.memory);
  return {all.begin(), all.end()};
}

UniqueFd VirtualMemory::CopyOf(const PhysicalMemory& memory, std::uint64_t number) {
  ExportName told;
  if (!ReadExportName(memory.file, &told)) return {};
  told.memory = number;
  UniqueFd file = MakeExportFile(told);
  if (!file || !CopyFile(memory.file, file.Get(), memory.bytes)) return {};
  return file;
}

void VirtualMemory::Replace(PhysicalMemory& memory, UniqueFd file) {
  const AddressMap::Changes changes;
  const MutexLock lock(mutex_);
  for (const auto& [address, mapped] : mappings_) {
    if (mapped.memory.get() != &memory) continue;
    const int access = mapped.host_access || mapped.devices != 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    // As many mappings as before, so there is room for it.
    static_cast<void>(mmap(Pointer(address), mapped.bytes, access, MAP_SHARED | MAP_FIXED, file.Get(), 0));
  }
  memory.own_file = std::move(file);
  memory.file = memory.own_file.Get();
  memory.exported = false;
}

CUresult VirtualMemory::Release(CUmemGenericAllocationHandle handle) {
  const MutexLock lock(mutex_);
  const auto memory = Find(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (--memory->handles == 0) Memories::Get().Remove(handle);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Retain(CUdeviceptr address, CUmemGenericAllocationHandle* handle) {
  const MutexLock lock(mutex_);
  auto mapped = mappings_.upper_bound(address);
  if (mapped == mappings_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --mapped;
  if (address - mapped->first >= mapped->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto& memory = mapped->second.memory;
  *handle = Memories::Of(*memory);
  // All handles may have been released while it stayed mapped.
  if (memory->handles++ == 0) Memories::Get().Add(memory);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Export(CUmemGenericAllocationHandle handle, int* file) {
  const auto memory = Find(handle);
  if (memory == nullptr || !memory->own_file || memory->imported) return CUDA_ERROR_INVALID_VALUE;
  memory->exported = true;
  *file = fcntl(memory->file, F_DUPFD_CLOEXEC, 3);
  return *file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult VirtualMemory::Import(int file, CUmemGenericAllocationHandle* handle) {
  ExportName told;
  struct stat status = {};
  if (!ReadExportName(file, &told) || fstat(file, &status) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool on_device = told.location == CU_MEM_LOCATION_TYPE_DEVICE;
  if (on_device && (told.memory == 0 || told.shared_index < 0 || told.shared_index >= State().spec().devices))
    return CUDA_ERROR_INVALID_VALUE;
  if (!on_device && !KnowsMaker(told)) return CUDA_ERROR_INVALID_DEVICE;
  // It may have moved since it was named.
  if (const int device = on_device ? State().DeviceOf(told.memory) : -1; device >= 0) told.shared_index = device;
  auto memory = std::make_shared<PhysicalMemory>();
  memory->imported = true;
  memory->own_file.Reset(fcntl(file, F_DUPFD_CLOEXEC, 3));
  if (!memory->own_file) return CUDA_ERROR_OPERATING_SYSTEM;
  memory->file = memory->own_file.Get();
  memory->bytes = static_cast<std::uint64_t>(status.st_size);
  if (on_device) {
    memory->hold = State().Hold(told.shared_index, told.memory, memory->bytes);
    if (memory->hold == kNoHold) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto device = std::ranges::find(Devices(), on_device ? told.shared_index : -1,
                                        [](const auto& each) { return each->shared_index(); });
  memory->properties = {
      .type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      .location = {static_cast<CUmemLocationType>(told.location), device == Devices().end() ? 0 : (*device)->index()},
      .allocFlags = {.gpuDirectRDMACapable = static_cast<unsigned char>(told.direct)}};
  *handle = Memories::Get().Add(std::move(memory));
  return CUDA_SUCCESS;
}

bool VirtualMemory::InReservation(std::uint64_t address, std::uint64_t bytes) const {
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return false;
  --reservation;
  const std::uint64_t inside = address - reservation->first;
  return inside <= reservation->second && bytes <= reservation->second - inside;
}

CUresult VirtualMemory::Map(CUdeviceptr address, std::uint64_t bytes, std::uint64_t offset,
                            CUmemGenericAllocationHandle handle) {
  const auto memory = Find(handle);
  if (memory == nullptr || bytes == 0 || !Granular(address) || !Granular(bytes) || !Granular(offset))
    return CUDA_ERROR_INVALID_VALUE;
  if (offset != 0 || bytes != memory->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  const MutexLock lock(mutex_);
  if (!InReservation(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings_.lower_bound(address);
  const bool overlaps_next = next != mappings_.end() && next->first < address + bytes;
  const bool overlaps_previous =
      next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address;
  if (overlaps_next || overlaps_previous) return CUDA_ERROR_INVALID_VALUE;
  const auto file_offset = static_cast<off_t>(memory->offset);
  if (mmap(Pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file, file_offset) == MAP_FAILED) {
    return CUDA_ERROR_MAP_FAILED;
  }
  mappings_.emplace(address, Mapped{.bytes = bytes, .memory = memory});
  return CUDA_SUCCESS;
}

std::vector<VirtualMemory::Mappings::iterator> VirtualMemory::WholeMappings(std::uint64_t address,
                                                                            std::uint64_t bytes) {
  std::vector<Mappings::iterator> whole;
  const std::uint64_t end = address + bytes;
  for (auto mapped = mappings_.find(address); mapped != mappings_.end() && mapped->first == address && address < end;
       ++mapped) {
    whole.push_back(mapped);
    address += mapped->second.bytes;
  }
  if (address != end) whole.clear();
  return whole;
}

CUresult VirtualMemory::Unmap(CUdeviceptr address, std::uint64_t bytes) {
  const AddressMap::Changes changes;
  const MutexLock lock(mutex_);
  const auto whole = WholeMappings(address, bytes);
  if (whole.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& mapped : whole) {
    AddressMap::Get().Remove(mapped->first);
    mmap(Pointer(mapped->first), mapped->second.bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    mappings_.erase(mapped);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::SetAccess(CUdeviceptr address, std::uint64_t bytes, const CUmemAccessDesc& access) {
  const bool host = OnHost(access.location);
  const Device* device = access.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? DeviceOf(access.location.id) : nullptr;
  if (!host && device == nullptr) return CUDA_ERROR_INVALID_VALUE;  // as an H200 says (580.159.04)
  const bool give = access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const AddressMap::Changes changes;
  const MutexLock lock(mutex_);
  const auto whole = WholeMappings(address, bytes);
  if (whole.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& mapped : whole) {
    const std::uint64_t begin = mapped->first;
    Mapped& state = mapped->second;
    const bool known = state.devices != 0;
    if (host) {
      state.host_access = give;
    } else {
      const unsigned bit = 1u << device->index();
      state.devices = give ? state.devices | bit : state.devices & ~bit;
    }
    const bool any = state.host_access || state.devices != 0;
    mprotect(Pointer(begin), state.bytes, any ? PROT_READ | PROT_WRITE : PROT_NONE);
    const CUmemLocation& location = state.memory->properties.location;
    const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (!known && state.devices != 0) {
      AddressMap::Get().Insert({.address = begin,
                                .bytes = state.bytes,
                                .kind = on_device ? MemoryKind::kVirtual : MemoryKind::kVirtualHost,
                                .device = on_device ? location.id : device->index()});
    }
    if (known && state.devices == 0) AddressMap::Get().Remove(begin);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::GetAccess(CUdeviceptr address, const CUmemLocation& location, unsigned long long* flags) {
  const bool known = OnHost(location) || DeviceOf(location.id) != nullptr;
  const MutexLock lock(mutex_);
  const auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [begin, state] = *std::prev(next);
  if (address - begin >= state.bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!known) return CUDA_ERROR_INVALID_DEVICE;  // as an H200 says (580.159.04)
  const bool has = OnHost(location) ? state.host_access : (state.devices >> location.id & 1) != 0;
  *flags = has ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

VirtualMemory::FilePlace VirtualMemory::PlaceOf(std::uint64_t address) const {
  const MutexLock lock(mutex_);
  const auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return {};
  const auto& [begin, mapped] = *std::prev(next);
  const std::uint64_t inside = address - begin;
  if (inside >= mapped.bytes) return {};
  return {.file = mapped.memory->file,
          .offset = static_cast<off_t>(mapped.memory->offset + inside),
          .bytes = mapped.bytes - inside};
}

bool VirtualMemory::RangeOf(CUdeviceptr address, CUdeviceptr* begin, std::uint64_t* bytes) {
  const MutexLock lock(mutex_);
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return false;
  --reservation;
  if (address - reservation->first >= reservation->second) return false;
  *begin = reservation->first;
  *bytes = reservation->second;
  return true;
}

}  // namespace tessera::soft
