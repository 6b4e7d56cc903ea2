#pragma once

#include <sys/ioctl.h>

#include <cstdint>
#include <optional>

#include "channel/rm/driver_abi.h"
#include "channel/rm/object_event.h"

namespace tessera::channel {

// The act of an ioctl(2) that has returned 0 on the objects that lead to channels, for code that stands between a
// program and the driver within the program. Nothing if it was another request or failed. `argument` is the program's
// own.
inline std::optional<ObjectEvent> EventOfIoctl(int fd, unsigned long request, const void* argument) {
  if (_IOC_TYPE(request) != abi::kIoctlType || argument == nullptr) return std::nullopt;
  if (_IOC_NR(request) == abi::kFree && _IOC_SIZE(request) == sizeof(abi::Free)) {
    const auto& free = *static_cast<const abi::Free*>(argument);
    if (free.status != abi::kOk) return std::nullopt;
    return ObjectEvent{.kind = ObjectEvent::Kind::kFree, .fd = fd, .client = free.root, .object = free.object};
  }
  if (_IOC_NR(request) == abi::kDup && _IOC_SIZE(request) == sizeof(abi::Dup)) {
    const auto& dup = *static_cast<const abi::Dup*>(argument);
    if (dup.status != abi::kOk) return std::nullopt;
    return ObjectEvent{
        .fd = fd, .client = dup.client, .parent = dup.parent, .object = dup.object, .cls = abi::kDuplicate};
  }
  if (_IOC_NR(request) != abi::kAlloc) return std::nullopt;
  // Both layouts begin alike.
  const auto& alloc = *static_cast<const abi::AllocShort*>(argument);
  std::uint32_t status = abi::kOk;
  if (_IOC_SIZE(request) == sizeof(abi::Alloc)) {
    status = static_cast<const abi::Alloc*>(argument)->status;
  } else if (_IOC_SIZE(request) == sizeof(abi::AllocShort)) {
    status = alloc.status;
  } else {
    return std::nullopt;
  }
  const bool root = abi::IsRoot(alloc.cls);
  const bool leads = root || alloc.cls == abi::kDevice || alloc.cls == abi::kChannelGroup || abi::IsChannel(alloc.cls);
  if (status != abi::kOk || !leads) return std::nullopt;
  ObjectEvent event = {.fd = fd,
                       .client = root ? alloc.object : alloc.root,
                       .parent = alloc.parent,
                       .object = alloc.object,
                       .cls = alloc.cls};
  const auto* const params = reinterpret_cast<const void*>(alloc.params);
  if (params != nullptr && alloc.cls == abi::kDevice) {
    event.detail = static_cast<const abi::DeviceParams*>(params)->device;
  }
  if (params != nullptr && alloc.cls == abi::kChannelGroup) {
    event.detail = static_cast<const abi::GroupParams*>(params)->engine;
  }
  return event;
}

}  // namespace tessera::channel
