#include "soft/checkpoint/device_contents.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "soft/device/address_map.h"
#include "soft/device/context.h"
#include "soft/device/device.h"
#include "soft/device/heap.h"
#include "soft/device/virtual_memory.h"

namespace tessera::soft {
namespace {

using namespace cuda;

std::string LinkOf(const std::string& path) {
  char target[128];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  return {target, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

// Calls `look` with the name of each entry, which is a number, of a folder of /proc. True once it returns true.
template <typename Look>
bool AnyNumber(const std::string& folder, Look look) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  while (const dirent* entry = opened ? readdir(opened.get()) : nullptr) {
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && look(std::string(entry->d_name))) return true;
  }
  return false;
}

// Some process of this user has a descriptor of the file: each such file has a name of its own.
bool HasDescriptor(const std::string& name) {
  return AnyNumber("/proc", [&](const std::string& pid) {
    const std::string files = "/proc/" + pid + "/fd/";
    return AnyNumber(files, [&](const std::string& file) { return LinkOf(files + file) == name; });
  });
}

int SharedIndexOf(const PhysicalMemory& memory) {
  return Devices()[static_cast<std::size_t>(memory.properties.location.id)]->shared_index();
}

}  // namespace

CUresult DeviceContents::WhatEndsRestore() {
  CUresult end = CUDA_SUCCESS;
  for (const auto& memory : VirtualMemory::Get().All()) {
    if (memory->imported) return CUDA_ERROR_NOT_SUPPORTED;
    if (OnHost(memory->properties.location)) end = CUDA_ERROR_UNKNOWN;
  }
  return end;
}

bool DeviceContents::HasWhatEndsCheckpoint() {
  const auto contexts = Context::AllOpen();
  return std::ranges::any_of(contexts, [](Context* context) {
    const auto mappings = AddressMap::Get().OfContext(context);
    const bool managed_or_opened = std::ranges::any_of(mappings, [](const Mapping& mapping) {
      return mapping.kind == MemoryKind::kManaged || mapping.kind == MemoryKind::kImported;
    });
    return managed_or_opened || context->heap().HasShared();
  });
}

CUresult DeviceContents::TakeOff() {
  std::vector<TakenMemory> taken;
  std::vector<UniqueFd> copies;
  const auto all = VirtualMemory::Get().All();
  for (const auto& memory : all) {
    if (memory->hold == kNoHold || memory->imported) continue;
    taken.push_back({memory, SharedIndexOf(*memory), state_.NewMemory()});
    copies.push_back(VirtualMemory::CopyOf(*memory, taken.back().number));
    if (!copies.back()) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    PhysicalMemory& memory = *taken[i].memory;
    if (memory.exported) {
      const std::string name = LinkOf("/proc/self/fd/" + std::to_string(memory.file));
      left_behind_.push_back({std::exchange(memory.hold, kNoHold), name});
    }
    VirtualMemory::Get().Replace(memory, std::move(copies[i]));
  }
  for (const auto& memory : all) {
    if (memory->hold != kNoHold) state_.LetGo(std::exchange(memory->hold, kNoHold));
  }
  memories_ = std::move(taken);
  ForgetLeftBehind();
  for (int device = 0; device < state_.spec().devices; ++device) uses_[device] = state_.TakeOff(device);
  return CUDA_SUCCESS;
}

CUresult DeviceContents::PutOn(const std::array<int, kMaxDevices>& to) {
  std::array<DeviceUse, kMaxDevices> uses = {};
  for (int device = 0; device < state_.spec().devices; ++device) uses[to[device]] = uses_[device];
  std::vector<WantedHold> holds;
  for (const TakenMemory& taken : memories_) holds.push_back({to[taken.device], taken.number, taken.memory->bytes});
  if (!state_.PutOn(uses, holds)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (std::size_t i = 0; i < holds.size(); ++i) memories_[i].memory->hold = holds[i].hold;
  for (const auto& device : Devices()) device->MoveTo(to[device->shared_index()]);
  memories_.clear();
  uses_ = {};
  return CUDA_SUCCESS;
}

std::uint64_t DeviceContents::bytes() const {
  std::uint64_t bytes = 0;
  for (const DeviceUse& use : uses_) bytes += use.bytes;
  for (const TakenMemory& taken : memories_) bytes += taken.memory->bytes;
  return bytes;
}

bool DeviceContents::ForgetLeftBehind() {
  std::erase_if(left_behind_, [this](const LeftBehind& left) {
    if (HasDescriptor(left.name)) return false;
    state_.LetGo(left.hold);
    return true;
  });
  return left_behind_.empty();
}

}  // namespace tessera::soft
