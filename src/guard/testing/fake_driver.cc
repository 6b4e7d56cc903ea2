#include "guard/testing/fake_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "guard/request/requests.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

constexpr off_t kControlSize = 195255, kDeviceSize = 195000, kDisplaySize = 226000;

}  // namespace

int FakeDriver::Open(File kind) {
  const int file = memfd_create("nvidia", MFD_CLOEXEC);
  const off_t size = kind == File::kControl ? kControlSize : kind == File::kDisplay ? kDisplaySize : kDeviceSize;
  if (ftruncate(file, size) != 0) return -1;
  return file;
}

KernelBoundary::File FakeDriver::Kind(const struct stat& file) const {
  if (!S_ISREG(file.st_mode)) return File::kOther;
  if (file.st_size == kControlSize) return File::kControl;
  if (file.st_size == kDisplaySize) return File::kDisplay;
  return file.st_size == kDeviceSize ? File::kDevice : File::kOther;
}

bool FakeDriver::OwnedBy(std::uint32_t client, int file) {
  struct stat status;
  if (fstat(file, &status) != 0) return false;
  return clients_.try_emplace(client, status.st_ino).first->second == status.st_ino;
}

std::uint32_t FakeDriver::Insert(std::uint32_t client, std::uint32_t parent, std::uint32_t* object,
                                 std::uint64_t memory) {
  if (*object == 0) *object = ++next_handle_;
  if (!objects_.try_emplace({client, *object}, Object{.parent = parent, .memory = memory}).second) return 0x19;
  if (memory != 0) ++memories_[memory].handles;
  std::uint64_t used = 0;
  for (const auto& [id, its] : memories_) used += its.bytes;
  most_ = std::max(most_, used);
  return abi::kOk;
}

void FakeDriver::Erase(const Key& key) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return;
  const Object object = found->second;
  objects_.erase(found);
  if (object.memory != 0 && --memories_[object.memory].handles == 0) memories_.erase(object.memory);
  for (auto at = objects_.lower_bound({key.first, 0}); at != objects_.end() && at->first.first == key.first;) {
    if (at->second.parent == key.second) {
      const Key child = at->first;
      Erase(child);
      at = objects_.lower_bound({key.first, 0});
    } else {
      ++at;
    }
  }
}

void FakeDriver::Free(std::uint32_t client, std::uint32_t object) {
  Erase({client, object});
  if (object != client) return;
  clients_.erase(client);
  for (auto at = objects_.lower_bound({client, 0}); at != objects_.end() && at->first.first == client;
       at = objects_.lower_bound({client, 0})) {
    Erase(Key(at->first));
  }
}

template <typename Struct>
void FakeDriver::Alloc(Struct& request, int file) {
  request.status = OwnedBy(request.root, file) ? fail_with_ : abi::kInvalidClient;
  if (request.status != abi::kOk) return;
  std::uint64_t memory = 0;
  if (request.cls == abi::kMemoryLocal) {
    auto* params = reinterpret_cast<abi::MemoryParams*>(request.params);
    if (memory_params_ != 0) {
      // Without a size the driver takes what its class has.
      if (request.params_bytes != 0 && request.params_bytes != memory_params_) {
        request.status = abi::kInvalidArgument;
        return;
      }
      ++*reinterpret_cast<std::uint32_t*>(request.params + memory_params_ - sizeof(std::uint32_t));
    }
    params->size = (params->size + kGranularity - 1) / kGranularity * kGranularity;
    params->limit = params->size - 1;
    memory = ++last_memory_;
    memories_[memory].bytes = params->size;
  }
  request.status = Insert(request.root, request.parent, &request.object, memory);
  if (request.status != abi::kOk) memories_.erase(memory);
}

void FakeDriver::Dup(void* argument, int file) {
  auto& dup = *static_cast<abi::Dup*>(argument);
  const auto source = objects_.find({dup.source_client, dup.source_object});
  if (!OwnedBy(dup.client, file)) {
    dup.status = abi::kInvalidClient;
  } else if (source == objects_.end()) {
    dup.status = 0x57;
  } else {
    dup.status = Insert(dup.client, dup.parent, &dup.object, source->second.memory);
  }
}

void FakeDriver::Heap(void* argument, int file) {
  const auto word = [&](std::size_t offset) -> std::uint32_t& {
    return *reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(argument) + offset);
  };
  if (!OwnedBy(word(0), file)) {
    word(20) = abi::kInvalidClient;
  } else if (word(8) == 3) {
    Erase({word(0), word(44)});
    word(20) = abi::kOk;
  } else {
    memories_[++last_memory_].bytes = *reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(argument) + 88);
    word(20) = Insert(word(0), word(4), &word(44), last_memory_);
  }
}

void FakeDriver::Control(void* argument, int file) {
  auto& control = *static_cast<abi::Control*>(argument);
  control.status = OwnedBy(control.client, file) ? abi::kOk : abi::kInvalidClient;
  if (control.command == abi::kDisableChannels) {
    stopped_ += reinterpret_cast<const abi::DisableChannels*>(control.params)->channels;
  }
}

int FakeDriver::Execute(int file, std::uint64_t request, void* argument) {
  const MutexLock lock(mutex_);
  switch (NumberOf(request)) {
    case abi::kAlloc:
      if (BytesOf(request) == sizeof(abi::Alloc)) {
        Alloc(*static_cast<abi::Alloc*>(argument), file);
      } else {
        Alloc(*static_cast<abi::AllocShort*>(argument), file);
      }
      return 0;
    case abi::kFree: {
      auto& free = *static_cast<abi::Free*>(argument);
      free.status = OwnedBy(free.root, file) ? abi::kOk : abi::kInvalidClient;
      if (free.status == abi::kOk) Free(free.root, free.object);
      return 0;
    }
    case abi::kDup:
      Dup(argument, file);
      return 0;
    case abi::kHeapControl:
      Heap(argument, file);
      return 0;
    case abi::kControl:
      Control(argument, file);
      return 0;
    default:
      return -EINVAL;
  }
}

std::uint64_t FakeDriver::BytesInUse() const {
  const MutexLock lock(mutex_);
  std::uint64_t used = 0;
  for (const auto& [id, memory] : memories_) used += memory.bytes;
  return used;
}

std::uint64_t FakeDriver::MostBytesInUse() const {
  const MutexLock lock(mutex_);
  return most_;
}

std::size_t FakeDriver::Objects() const {
  const MutexLock lock(mutex_);
  return objects_.size();
}

std::size_t FakeDriver::ChannelsStopped() const {
  const MutexLock lock(mutex_);
  return stopped_;
}

void FakeDriver::SetMemoryParams(std::uint32_t bytes) {
  const MutexLock lock(mutex_);
  memory_params_ = bytes;
}

void FakeDriver::FailAllocations(std::uint32_t status) {
  const MutexLock lock(mutex_);
  fail_with_ = status;
}

}  // namespace tessera::guard
