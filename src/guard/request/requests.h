// Decisions of the kernel gate about driver requests. Pure, from bytes that were copied out of the program once. The
// table of controls that programs may not make is in requests.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "channel/rm/driver_abi.h"

namespace tessera::guard {

// Escapes that only the gate needs; the others are in channel::abi::Escape. [S] nv_escape.h, nv-ioctl-numbers.h
inline constexpr std::uint32_t kAllocMemory = 0x27;  // NV_ESC_RM_ALLOC_MEMORY (NVOS02 with a descriptor)
inline constexpr std::uint32_t kAllocObject = 0x28;  // NV_ESC_RM_ALLOC_OBJECT (NVOS05), without parameters
inline constexpr std::uint32_t kWrapped = 0xd3;  // NV_ESC_IOCTL_XFER_CMD: holds the number, size and address of another

// A guarded ioctl. The driver identifies a request by its number and size, and ignores its type and direction ([S]
// nv.c, nvidia_ioctl). So does the gate: otherwise 'G' in place of 'F' would bypass it.
struct GuardedSize {
  std::uint32_t number, bytes;
};
inline constexpr std::array<GuardedSize, 9> kGuardedSizes{{{channel::abi::kFree, sizeof(channel::abi::Free)},
                                                           {channel::abi::kControl, sizeof(channel::abi::Control)},
                                                           {channel::abi::kAlloc, sizeof(channel::abi::AllocShort)},
                                                           {channel::abi::kAlloc, sizeof(channel::abi::Alloc)},
                                                           {channel::abi::kDup, sizeof(channel::abi::Dup)},
                                                           {channel::abi::kHeapControl, 184},
                                                           {kAllocMemory, 56},
                                                           {kAllocObject, 20},
                                                           {kWrapped, 16}}};
inline constexpr std::size_t kMostArgumentBytes = 184;

// The same numbers with NVIDIA's type byte ('F') are guarded in all sizes: a driver newer than this code may have grown
// a request.
inline constexpr std::array<std::uint32_t, 8> kGuardedNumbers = {
    channel::abi::kFree,        channel::abi::kControl, channel::abi::kAlloc, channel::abi::kDup,
    channel::abi::kHeapControl, kAllocMemory,           kAllocObject,         kWrapped};

// Requests by which NVIDIA's display driver (nvidia-drm) makes GPU memory for whoever opens /dev/dri/renderD* or card*:
// DRM_IOCTL_NVIDIA_GEM_ALLOC_NVKMS_MEMORY (DRM_COMMAND_BASE + 0x0b) and DRM_IOCTL_MODE_CREATE_DUMB. Its others import
// what another request made. The kernel identifies them by their number alone. [S] nvidia-drm-ioctl.h,
// nvidia-drm-drv.c, nvidia-drm-gem-nvkms-memory.c; drm_ioctl.c
inline constexpr std::array<std::uint32_t, 2> kDisplayNumbers = {0x4b, 0xb2};

// The parts of an ioctl's request that count.
constexpr std::uint32_t NumberOf(std::uint64_t request) { return request & 0xff; }
constexpr std::uint32_t BytesOf(std::uint64_t request) { return request >> 16 & 0x3fff; }

// All numbers that a filter must hold which goes by the number alone.
constexpr auto HeldNumbers() {
  std::array<std::uint32_t, kGuardedNumbers.size() + kDisplayNumbers.size()> all{};
  std::size_t at = 0;
  for (const std::uint32_t number : kGuardedNumbers) all[at++] = number;
  for (const std::uint32_t number : kDisplayNumbers) all[at++] = number;
  return all;
}

// Whether it may make memory by the display driver; on files of other drivers it is something else.
constexpr bool IsDisplay(std::uint32_t number) { return number == kDisplayNumbers[0] || number == kDisplayNumbers[1]; }

// Whether the filter holds it for being NVIDIA's, whatever its size.
constexpr bool IsOfDriver(std::uint64_t request) {
  if ((request >> 8 & 0xff) != channel::abi::kIoctlType) return false;
  for (const std::uint32_t number : kGuardedNumbers) {
    if (number == NumberOf(request)) return true;
  }
  return false;
}

// Whether this code knows a guarded request of this number and size.
constexpr bool IsGuarded(std::uint32_t number, std::uint32_t bytes) {
  for (const GuardedSize& guarded : kGuardedSizes) {
    if (guarded.number == number && guarded.bytes == bytes) return true;
  }
  return false;
}

// The largest size of the number's requests that this code knows.
constexpr std::uint32_t MostBytesOf(std::uint32_t number) {
  std::uint32_t most = 0;
  for (const GuardedSize& guarded : kGuardedSizes) {
    if (guarded.number == number && guarded.bytes > most) most = guarded.bytes;
  }
  return most;
}

// The argument of a guarded ioctl, decoded. Handles are as the program gave them: `object` 0 lets RM choose.
struct Request {
  enum class Kind {
    kFree,
    kControl,
    kAlloc,
    kDup,
    kHeapAlloc,
    kHeapFree,
    kHeapOther,
    kAllocMemory,
    kAllocObject,
    kWrapped
  };
  Kind kind = Kind::kWrapped;
  std::uint32_t client = 0, parent = 0, object = 0;
  std::uint32_t cls = 0;                               // kAlloc, kAllocMemory, kAllocObject: the class
  std::uint32_t command = 0;                           // kControl: the command; kHeapOther: the function
  std::uint32_t source_client = 0, source_object = 0;  // kDup
  std::uint64_t params = 0;         // kAlloc, kControl: where the program's parameters are, in its memory
  std::uint32_t params_bytes = 0;   // how many; of kAlloc 0 means "as the class has them"
  std::uint64_t rights = 0;         // kAlloc: where a mask of rights is, in its memory; 0: none
  std::uint64_t bytes = 0;          // kHeapAlloc: of GPU memory
  std::uint32_t status_offset = 0;  // of the status in the argument
  std::uint32_t object_offset = 0;  // of the handle that RM writes, in the argument
};

// Decodes an argument of kGuardedSizes; anything else becomes kWrapped, which no program may make.
Request Decode(std::uint32_t number, std::span<const std::byte> argument);

// The gate's reaction to a request.
enum class Action {
  kPass,         // let the kernel go on with it
  kAnswer,       // write Decision::status into the program's argument and return 0, without doing it
  kFail,         // return Decision::error from the ioctl
  kMemory,       // allocates GPU memory: charge it, and make the call if that is granted
  kObject,       // makes a device, channel group or channel: make the call, and tell the owner
  kClient,       // makes a client: let it pass
  kFree,         // make the call, and give memory back
  kDup,          // make the call, and count the second handle
  kOwnChannels,  // make the call if all clients that it names are the program's own
};

struct Decision {
  Action action = Action::kPass;
  std::uint32_t status = 0;  // kAnswer: channel::abi::Status
  int error = 0;             // kFail: errno value
  std::string_view why;      // reason of a refusal, for people; empty otherwise
};

// How many bytes of a request's parameters Decide needs; 0 for most.
std::size_t ParamsWanted(const Request& request);

// `params`: the first ParamsWanted bytes of the parameters, or fewer if the program gave fewer.
Decision Decide(const Request& request, std::span<const std::byte> params);

// Of kAlloc, from its params; 0 where they are too short.
std::uint64_t MemoryBytes(std::span<const std::byte> params);                // of class kMemoryLocal
std::uint32_t Detail(std::uint32_t cls, std::span<const std::byte> params);  // channel::ObjectEvent::detail

}  // namespace tessera::guard
