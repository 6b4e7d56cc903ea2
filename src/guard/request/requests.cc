#include "guard/request/requests.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

// Classes that only the gate needs, beside those of channel::abi. [S] class/cl*.h
//
// The GPU's registers (NV01_MEMORY_LOCAL_PRIVILEGED), which take no memory: RM makes a handle of the size of BAR 0 and
// ignores the size in the request. The Vulkan driver makes two when it starts. RM lets only processes with
// CAP_SYS_ADMIN map them; the gate does not hold such a process in other ways either. [S] reg_mem.c, mapping_cpu.c
constexpr std::uint32_t kRegisters = 0x3f;
// All of the GPU's memory in one handle, that of others too (NV01_MEMORY_LOCAL_PHYSICAL). [S] phys_mem.c
constexpr std::uint32_t kMemoryPhysical = 0xc2;
constexpr std::uint32_t kMemoryVirtual = 0x70;       // addresses only
constexpr std::uint32_t kMemoryOsDescriptor = 0x71;  // NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: the program's own memory

// NVOS32_PARAMETERS. [S] nvos.h
constexpr std::size_t kHeapFunction = 8, kHeapStatus = 20, kHeapData = 40;
constexpr std::uint32_t kHeapAllocSize = 2, kHeapFree = 3, kHeapAllocRange = 14;
constexpr std::uint32_t kHeapAllocPitch = 6, kHeapAllocDepth = 1, kHeapHwAlloc = 19;
constexpr std::uint32_t kFlagVirtual = 0x80000;  // NVOS32_ALLOC_FLAGS_VIRTUAL: addresses only
constexpr std::uint32_t kLocationShift = 25, kLocationMask = 3, kLocationSystem = 1, kLocationAgp = 2;

template <typename T>
T At(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// ---- controls that programs may not make ----

// The rule for a control. A control that is not in the table passes.
enum class Policy {
  kRefuse,   // it affects other programs' channels, or the order of all
  kPretend,  // answered with success and not made: Tessera sets the time of channels, and libraries set it, too
  kEnable,   // a flag in the first byte: 1 passes, 0 is pretended
  kOwnOnly,  // allowed for its own channels, and only to stop them, which hurts no other program
};

struct ControlPolicy {
  std::uint32_t command;
  Policy policy;
  std::string_view why;
};

// In the order of their numbers. [S] ctrl0080fifo.h, ctrl2080fifo.h, ctrl2080gpu.h, ctrla06c.h, ctrla06fgpfifo.h.
// Controls that RM itself keeps to the kernel (INTERNAL) are here where they name channels, in case a driver forgets.
constexpr ControlPolicy kControls[] = {
    {0x801705, Policy::kRefuse, "START_SELECTED_CHANNELS: would thaw"},
    {0x801709, Policy::kRefuse, "RUNLIST_GROUP_CHANNELS: changes the order of channels"},
    {0x80170b, Policy::kRefuse, "RUNLIST_DIVIDE_TIMESLICE: changes the order of channels"},
    {0x80170c, Policy::kRefuse, "PREEMPT_RUNLIST: takes whoever runs off the GPU"},
    {0x80170f, Policy::kRefuse, "SET_CHANNEL_PROPERTIES: a channel that is never switched away"},
    {0x801711, Policy::kRefuse, "STOP_RUNLIST: stops everybody"},
    {0x801712, Policy::kRefuse, "START_RUNLIST: starts everybody"},
    {0x2080012b, Policy::kRefuse, "GPU_PROMOTE_CTX: names other clients' channels"},
    {0x2080012c, Policy::kRefuse, "GPU_EVICT_CTX: names other clients' channels"},
    {0x2080012d, Policy::kRefuse, "GPU_INITIALIZE_CTX: names other clients' channels"},
    {0x20801103, Policy::kRefuse, "FIFO_BIND_ENGINES: names other clients' channels"},
    {0x2080110a, Policy::kRefuse, "FIFO_CHANNEL_PREEMPTIVE_REMOVAL: ends a channel"},
    // libcuda stops its own channels with it at the end.
    {abi::kDisableChannels, Policy::kOwnOnly, "FIFO_DISABLE_CHANNELS: freezes and thaws anybody"},
    {0x20801113, Policy::kRefuse, "FIFO_CLEAR_FAULTED_BIT: names channels by their hardware number"},
    {0x20801115, Policy::kRefuse, "FIFO_RUNLIST_SET_SCHED_POLICY: sets the order for everybody"},
    {0x20801116, Policy::kRefuse, "FIFO_UPDATE_CHANNEL_INFO: moves other clients' channels"},
    {0x20801117, Policy::kRefuse, "FIFO_DISABLE_USERMODE_CHANNELS: stops everybody"},
    {0x2080111a, Policy::kRefuse, "FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION: names other clients' channels"},
    {0x2080111b, Policy::kRefuse, "FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION_V2: has RM thaw its channels"},
    {0x2080111c, Policy::kRefuse, "FIFO_ROTATE_KEYS: names other clients' channels"},  // of later drivers
    {0x20801121, Policy::kRefuse, "FIFO_OBJSCHED_SET_STATE: sets the scheduler for everybody"},
    // libcuda enables a group when it makes a context. Off does nothing to a group that runs [M].
    {abi::kGroupSchedule, Policy::kEnable, {}},
    {abi::kGroupSetSlice, Policy::kPretend, {}},
    {abi::kGroupPreempt, Policy::kRefuse, "PREEMPT: half a millisecond of the driver's locks a call"},
    {abi::kGroupSetInterleave, Policy::kPretend, {}},
    {abi::kGroupRealtime, Policy::kPretend, {}},
    {0xa06c0201, Policy::kRefuse, "INTERNAL_GPFIFO_SCHEDULE: would thaw"},
    {0xa06c0202, Policy::kRefuse, "INTERNAL_SET_TIMESLICE: sets its own slice"},
    {0xa06f0109, Policy::kPretend, {}},  // SET_INTERLEAVE_LEVEL of a channel
    {0xa06f0111, Policy::kRefuse, "RESTART_RUNLIST: takes whoever runs off the GPU"},
};
static_assert(std::is_sorted(std::begin(kControls), std::end(kControls),
                             [](const auto& a, const auto& b) { return a.command < b.command; }));

const ControlPolicy* PolicyOf(std::uint32_t command) {
  const auto* found = std::lower_bound(std::begin(kControls), std::end(kControls), command,
                                       [](const ControlPolicy& entry, std::uint32_t c) { return entry.command < c; });
  return found != std::end(kControls) && found->command == command ? found : nullptr;
}

Decision Answer(std::uint32_t status, std::string_view why = {}) {
  return {.action = Action::kAnswer, .status = status, .why = why};
}

// Whether it only stops channels, without an event that would be signalled on our behalf.
bool OnlyStops(std::span<const std::byte> params) {
  if (params.size() < sizeof(abi::DisableChannels)) return false;
  return At<std::uint8_t>(params, offsetof(abi::DisableChannels, disable)) == 1 &&
         At<std::uint32_t>(params, offsetof(abi::DisableChannels, channels)) <= abi::kMostChannels &&
         At<std::uint64_t>(params, offsetof(abi::DisableChannels, preempt_event)) == 0;
}

Decision DecideControl(const Request& request, std::span<const std::byte> params) {
  const ControlPolicy* entry = PolicyOf(request.command);
  if (!entry) return {};
  switch (entry->policy) {
    case Policy::kEnable:
      if (At<std::uint8_t>(params, 0) != 0) return {};
      [[fallthrough]];
    case Policy::kPretend:
      return Answer(abi::kOk);
    case Policy::kOwnOnly:
      if (OnlyStops(params)) return {.action = Action::kOwnChannels, .why = entry->why};
      [[fallthrough]];
    case Policy::kRefuse:
      break;
  }
  return Answer(abi::kInsufficientPermissions, entry->why);
}

// ---- allocations ----

Decision DecideAlloc(std::uint32_t cls) {
  if (cls == abi::kMemoryLocal) return {.action = Action::kMemory};
  if (cls == kMemoryPhysical) return Answer(abi::kInsufficientPermissions, "all of the GPU's memory at once");
  if (cls == abi::kDevice || cls == abi::kChannelGroup || abi::IsChannel(cls)) {
    return {.action = Action::kObject};
  }
  if (abi::IsRoot(cls)) return {.action = Action::kClient};
  return {};
}

// An older allocation of an object, without parameters: a device is then the first GPU. The libraries of today make
// none so: what would have to be counted or told is refused. [S] nvos.h, NVOS05_PARAMETERS
Decision DecideAllocObject(std::uint32_t cls) {
  const Decision decision = DecideAlloc(cls);
  if (decision.action != Action::kMemory && decision.action != Action::kObject) return decision;
  return Answer(abi::kInsufficientPermissions, "an object by an old request");
}

// An older allocation of what takes no GPU memory. Of kMemoryLocal it is a handle on the whole of it, which NVIDIA's
// Vulkan driver makes while it starts, as any user [M]; for a program with CAP_SYS_ADMIN RM makes it kMemoryPhysical
// ([S] rmapi_deprecated_allocmemory.c), but from such a program nothing here protects anybody.
bool IsHarmless(std::uint32_t cls) {
  return cls == abi::kMemorySystem || cls == kMemoryVirtual || cls == kMemoryOsDescriptor || cls == kRegisters ||
         cls == abi::kMemoryLocal;
}

bool InGpuMemory(std::uint32_t flags, std::uint32_t attributes) {
  const std::uint32_t location = attributes >> kLocationShift & kLocationMask;
  return (flags & kFlagVirtual) == 0 && location != kLocationSystem && location != kLocationAgp;
}

// NVOS32's functions have their fields in slightly different places.
void DecodeHeap(std::span<const std::byte> argument, Request& request) {
  const auto data = argument.subspan(kHeapData);
  const auto function = At<std::uint32_t>(argument, kHeapFunction);
  request.command = function;
  request.kind = Request::Kind::kHeapOther;
  request.status_offset = kHeapStatus;
  request.object_offset = kHeapData + 4;
  request.object = At<std::uint32_t>(data, 4);
  if (function == kHeapFree) {
    request.kind = Request::Kind::kHeapFree;
  } else if (function == kHeapAllocSize || function == kHeapAllocRange) {
    if (!InGpuMemory(At<std::uint32_t>(data, 12), At<std::uint32_t>(data, 16))) return;
    request.kind = Request::Kind::kHeapAlloc;
    request.bytes = At<std::uint64_t>(data, function == kHeapAllocSize ? 48 : 40);
  }
}

// Ways to take GPU memory that no driver of today uses, and of which the size is not in the request.
bool TakesUncountedMemory(std::uint32_t function) {
  return function == kHeapAllocDepth || function == kHeapAllocPitch || function == kHeapHwAlloc;
}

}  // namespace

Request Decode(std::uint32_t number, std::span<const std::byte> argument) {
  Request request;
  if (!IsGuarded(number, static_cast<std::uint32_t>(argument.size()))) return request;
  const auto word = [&](std::size_t offset) { return At<std::uint32_t>(argument, offset); };
  // All of them begin with the client; all but the control with the parent and the object.
  request.client = word(0);
  request.parent = word(4);
  request.object = word(8);
  request.object_offset = 8;
  switch (number) {
    case abi::kFree:
      request.kind = Request::Kind::kFree;
      request.status_offset = offsetof(abi::Free, status);
      break;
    case abi::kControl:
      request.kind = Request::Kind::kControl;
      request.object = word(offsetof(abi::Control, object));
      request.command = word(offsetof(abi::Control, command));
      request.params = At<std::uint64_t>(argument, offsetof(abi::Control, params));
      request.params_bytes = word(offsetof(abi::Control, params_bytes));
      request.status_offset = offsetof(abi::Control, status);
      break;
    case abi::kAlloc: {
      const bool with_rights = argument.size() == sizeof(abi::Alloc);
      request.kind = Request::Kind::kAlloc;
      request.cls = word(offsetof(abi::Alloc, cls));
      request.params = At<std::uint64_t>(argument, offsetof(abi::Alloc, params));
      request.rights = with_rights ? At<std::uint64_t>(argument, offsetof(abi::Alloc, rights)) : 0;
      request.params_bytes =
          word(with_rights ? offsetof(abi::Alloc, params_bytes) : offsetof(abi::AllocShort, params_bytes));
      request.status_offset = with_rights ? offsetof(abi::Alloc, status) : offsetof(abi::AllocShort, status);
      break;
    }
    case abi::kDup:
      request.kind = Request::Kind::kDup;
      request.source_client = word(offsetof(abi::Dup, source_client));
      request.source_object = word(offsetof(abi::Dup, source_object));
      request.status_offset = offsetof(abi::Dup, status);
      break;
    case abi::kHeapControl:
      DecodeHeap(argument, request);
      break;
    case kAllocMemory:
      request.kind = Request::Kind::kAllocMemory;
      request.cls = word(12);
      request.status_offset = 40;
      break;
    case kAllocObject:
      request.kind = Request::Kind::kAllocObject;
      request.cls = word(12);
      request.status_offset = 16;
      break;
    default:
      request.kind = Request::Kind::kWrapped;
  }
  return request;
}

std::size_t ParamsWanted(const Request& request) {
  if (request.kind != Request::Kind::kControl) return 0;
  const ControlPolicy* entry = PolicyOf(request.command);
  if (!entry) return 0;
  if (entry->policy == Policy::kOwnOnly) return sizeof(abi::DisableChannels);
  return entry->policy == Policy::kEnable ? 1 : 0;
}

Decision Decide(const Request& request, std::span<const std::byte> params) {
  switch (request.kind) {
    case Request::Kind::kFree:
    case Request::Kind::kHeapFree:
      return {.action = Action::kFree};
    case Request::Kind::kControl:
      return DecideControl(request, params);
    case Request::Kind::kAlloc:
      return DecideAlloc(request.cls);
    case Request::Kind::kDup:
      return {.action = Action::kDup};
    case Request::Kind::kHeapAlloc:
      return {.action = Action::kMemory};
    case Request::Kind::kHeapOther:
      if (TakesUncountedMemory(request.command)) return Answer(abi::kNotSupported, "memory of a size not said");
      return {};
    case Request::Kind::kAllocMemory:
      if (IsHarmless(request.cls)) return {};
      return Answer(abi::kNotSupported, "GPU memory by an old request");
    case Request::Kind::kAllocObject:
      return DecideAllocObject(request.cls);
    case Request::Kind::kWrapped:
      break;
  }
  // It could wrap one thing while we look and another when the driver does. The driver's libraries wrap only what is
  // too large for an ioctl, and nothing here is.
  return {.action = Action::kFail, .error = EINVAL, .why = "a request inside another"};
}

std::uint64_t MemoryBytes(std::span<const std::byte> params) {
  return At<std::uint64_t>(params, offsetof(abi::MemoryParams, size));
}

std::uint32_t Detail(std::uint32_t cls, std::span<const std::byte> params) {
  if (cls == abi::kDevice) return At<std::uint32_t>(params, offsetof(abi::DeviceParams, device));
  if (cls == abi::kChannelGroup) return At<std::uint32_t>(params, offsetof(abi::GroupParams, engine));
  return 0;
}

}  // namespace tessera::guard
