#include "guard/gate/soft_boundary.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "guard/request/requests.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

constexpr std::uint32_t kDuplicate = 0x19, kNotFound = 0x57;  // NV_ERR_INSERT_DUPLICATE_NAME, NV_ERR_OBJECT_NOT_FOUND

struct Object {
  std::uint32_t handle = 0;  // 0: the place is free
  std::uint32_t parent = 0;
};
struct Table {
  std::uint32_t client = 0;
  std::uint32_t last_handle = 0;
  Object objects[1024];
};
static_assert(sizeof(Table) <= SoftBoundary::kFileBytes);

// The file belongs to the client that is named on it first.
bool Owns(Table& table, std::uint32_t client) {
  if (table.client == 0) table.client = client;
  return table.client == client;
}

std::uint32_t Insert(Table& table, std::uint32_t parent, std::uint32_t& handle) {
  if (handle == 0) handle = 0xd0000000 + ++table.last_handle;
  const std::span objects(table.objects);
  if (std::ranges::find(objects, handle, &Object::handle) != objects.end()) return kDuplicate;
  const auto place = std::ranges::find(objects, 0U, &Object::handle);
  if (place == objects.end()) return abi::kNoMemory;
  *place = {.handle = handle, .parent = parent};
  return abi::kOk;
}

std::uint32_t Free(Table& table, std::uint32_t handle) {
  const std::span objects(table.objects);
  if (handle == table.client) {
    std::ranges::fill(objects, Object{});
    table.client = 0;
    return abi::kOk;
  }
  const auto found = std::ranges::find(objects, handle, &Object::handle);
  if (handle == 0 || found == objects.end()) return kNotFound;
  *found = {};
  for (const Object& object : objects) {
    if (object.handle != 0 && object.parent == handle) Free(table, object.handle);
  }
  return abi::kOk;
}

int Act(Table& table, std::uint64_t request, void* argument) {
  switch (NumberOf(request)) {
    case abi::kAlloc: {
      if (BytesOf(request) != sizeof(abi::Alloc)) return -EINVAL;
      auto& alloc = *static_cast<abi::Alloc*>(argument);
      if (alloc.cls == abi::kMemoryLocal && alloc.params != 0) {
        auto& size = reinterpret_cast<abi::MemoryParams*>(alloc.params)->size;
        size = (size + SoftBoundary::kGranularity - 1) / SoftBoundary::kGranularity * SoftBoundary::kGranularity;
      }
      alloc.status = Owns(table, alloc.root) ? Insert(table, alloc.parent, alloc.object) : abi::kInvalidClient;
      return 0;
    }
    case abi::kFree: {
      auto& free = *static_cast<abi::Free*>(argument);
      free.status = Owns(table, free.root) ? Free(table, free.object) : abi::kInvalidClient;
      return 0;
    }
    case abi::kControl: {
      auto& control = *static_cast<abi::Control*>(argument);
      control.status = Owns(table, control.client) ? abi::kOk : abi::kInvalidClient;
      return 0;
    }
    default:
      return -EINVAL;
  }
}

}  // namespace

int SoftBoundary::Open() {
  const int file = memfd_create("nvidiactl", MFD_CLOEXEC);
  return ftruncate(file, kFileBytes) == 0 ? file : -1;
}

std::size_t SoftBoundary::Objects(int file) {
  void* bytes = mmap(nullptr, sizeof(Table), PROT_READ, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) return 0;
  const std::span objects(static_cast<const Table*>(bytes)->objects);
  const auto count = std::ranges::count_if(objects, [](const Object& object) { return object.handle != 0; });
  munmap(bytes, sizeof(Table));
  return static_cast<std::size_t>(count);
}

KernelBoundary::File SoftBoundary::Kind(const struct stat& file) const {
  return S_ISREG(file.st_mode) && file.st_size == kFileBytes ? File::kControl : File::kOther;
}

// Each time anew: the file is the program's, and goes with it.
int SoftBoundary::Execute(int file, std::uint64_t request, void* argument) {
  void* bytes = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) return -errno;
  const int result = Act(*static_cast<Table*>(bytes), request, argument);
  munmap(bytes, sizeof(Table));
  return result;
}

}  // namespace tessera::guard
