// ABI of NVIDIA's resource manager (RM) on /dev/nvidiactl: the numbers and layouts that steering channels needs,
// in this one file. None of it is a published interface; tessera-channel-test (self_test.cc) checks at start that the
// running driver still answers as said here, and channel control is switched off where it does not.
//
// Sources: [S] NVIDIA's open kernel modules 580.159.04, headers under src/common/sdk/nvidia/inc (nvos.h, class/*.h,
// ctrl/*.h), by the names given here; [M] measured on an H200 with 580.159.04, docs/hardware-log.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::channel::abi {

// Device numbers of /dev/nvidiactl; /dev/nvidiaN is minor N. [S] nv.h
inline constexpr unsigned kMajor = 195;
inline constexpr unsigned kControlMinor = 255;

// ioctl(2) requests are _IOWR(kIoctlType, number, struct); the size varies for kAlloc, so compare type and number only.
inline constexpr unsigned kIoctlType = 'F';  // [S] NV_IOCTL_MAGIC
enum Escape : unsigned {                     // [S] nv_escape.h
  kFree = 0x29,                              // NV_ESC_RM_FREE
  kControl = 0x2a,                           // NV_ESC_RM_CONTROL
  kAlloc = 0x2b,                             // NV_ESC_RM_ALLOC
  kDup = 0x34,                               // NV_ESC_RM_DUP_OBJECT
  kHeapControl = 0x4a,  // NV_ESC_RM_VID_HEAP_CONTROL (NVOS32): allocations of older and graphics drivers
};

// RM's answers in a request's status field, without their NV_ERR_; the ioctl itself returns 0 all the same. [S]
// nvstatuscodes.h
enum Status : std::uint32_t {
  kOk = 0,
  kInsufficientPermissions = 0x1b,
  kInvalidArgument = 0x1f,
  kInvalidChannel = 0x21,
  kInvalidClient = 0x23,  // also: a client that another file made [M]
  kInvalidObject = 0x31,
  kInvalidObjectHandle = 0x33,
  kInvalidObjectParent = 0x36,
  kNoMemory = 0x51,
  kNotSupported = 0x56,
  kObjectNotFound = 0x57,
};
// Answers that RM may give when a handle that was right is no more: its process freed it, or ended.
constexpr bool IsVanished(std::uint32_t status) {
  return status == kInvalidArgument || status == kInvalidChannel || status == kInvalidClient ||
         status == kInvalidObject || status == kInvalidObjectHandle || status == kInvalidObjectParent ||
         status == kObjectNotFound;
}

// Classes of objects. [S] class/cl*.h
enum Class : std::uint32_t {
  kRoot =
      0x0,  // NV01_ROOT: a client, which owns all its objects; kRootClient and kRootNonPrivileged are the same thing
  kRootNonPrivileged = 0x1,     // NV01_ROOT_NON_PRIV
  kRootClient = 0x41,           // NV01_ROOT_CLIENT
  kDevice = 0x80,               // NV01_DEVICE_0
  kSubdevice = 0x2080,          // NV20_SUBDEVICE_0
  kMemoryLocal = 0x40,          // NV01_MEMORY_LOCAL_USER: GPU memory
  kMemorySystem = 0x3e,         // NV01_MEMORY_SYSTEM: host memory
  kChannelGroup = 0xa06c,       // KEPLER_CHANNEL_GROUP_A: a TSG
  kBorrowedGroup = 0xfffffffe,  // no class of RM's: a duplicate of another process's channel group
  kDuplicate = 0xffffffff,      // no class of RM's: what kDup made, of whatever class it is
};
constexpr bool IsRoot(std::uint32_t cls) { return cls == kRoot || cls == kRootNonPrivileged || cls == kRootClient; }

inline constexpr std::uint32_t kAnyChannel = 0xc86f;  // where only that it is a channel matters

// The channel classes of Volta, Turing, Ampere and Ada, Hopper, Blackwell A and B: VOLTA_CHANNEL_GPFIFO_A and so on.
constexpr bool IsChannel(std::uint32_t cls) {
  return cls == 0xc36f || cls == 0xc46f || cls == 0xc56f || cls == 0xc86f || cls == 0xc96f || cls == 0xca6f;
}

// NVOS21_PARAMETERS and NVOS64_PARAMETERS: both are in use; the request's size tells which. [S] nvos.h
struct AllocShort {
  std::uint32_t root, parent, object, cls;
  std::uint64_t params;
  std::uint32_t params_bytes, status;
};
struct Alloc {
  std::uint32_t root, parent, object, cls;  // `object` 0: RM chooses and writes it here
  std::uint64_t params, rights;
  std::uint32_t params_bytes, flags, status, reserved;
};
static_assert(sizeof(AllocShort) == 32 && offsetof(AllocShort, status) == 28);
static_assert(sizeof(Alloc) == 48 && offsetof(Alloc, status) == 40);

struct Control {  // NVOS54_PARAMETERS
  std::uint32_t client, object, command, flags;
  std::uint64_t params;
  std::uint32_t params_bytes, status;
};
static_assert(sizeof(Control) == 32 && offsetof(Control, status) == 28);

struct Free {  // NVOS00_PARAMETERS; a parent's end is its children's, a file's close its clients'
  std::uint32_t root, parent, object, status;
};
static_assert(sizeof(Free) == 16);

struct Dup {  // NVOS55_PARAMETERS: `object` of `client` becomes another handle of `source_object` of `source_client`
  std::uint32_t client, parent, object, source_client, source_object, flags, status;
};
static_assert(sizeof(Dup) == 28 && offsetof(Dup, status) == 24);

// Parameters of allocations.
struct DeviceParams {  // NV0080_ALLOC_PARAMETERS
  std::uint32_t device, client_share, target_client, target_device;
  std::int32_t flags;
  std::uint32_t pad;
  std::uint64_t va_size, va_start, va_limit;
  std::int32_t va_mode;
  std::uint32_t pad2;
};
static_assert(sizeof(DeviceParams) == 56 && offsetof(DeviceParams, va_size) == 24);

struct SubdeviceParams {  // NV2080_ALLOC_PARAMETERS
  std::uint32_t subdevice;
};

struct GroupParams {  // NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, as far as it is of use here
  std::uint32_t error_object, ecc_error_object, va_space, engine;
};
inline constexpr std::uint32_t kEngineGraphics = 1;  // NV2080_ENGINE_TYPE_GRAPHICS: compute too; 0x9 and up: copies

struct MemoryParams {  // NV_MEMORY_ALLOCATION_PARAMS, as far as it is of use here
  std::uint32_t owner, type, flags, width, height;
  std::int32_t pitch;
  std::uint32_t attributes, attributes2, format, compression, zcull, pad;
  std::uint64_t range_low, range_high, size, alignment, offset, limit;
};
static_assert(offsetof(MemoryParams, size) == 64);

// Controls. Times are measured with the tenant saturating the GPU [M].
enum Command : std::uint32_t {
  // NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, of a client: AttachedIds.
  kGetAttachedIds = 0x201,
  // NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, of a client: IdInfo. The older 0x202 wants a pointer to a name, too.
  kGetIdInfo = 0x205,
  // NV2080_CTRL_CMD_GPU_GET_GID_INFO, of a subdevice: Uuid.
  kGetUuid = 0x2080014a,
  // NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: says ok and does nothing to a running group [M]. Not used, but refused to tenants.
  kGroupSchedule = 0xa06c0101,
  // NVA06C_CTRL_CMD_SET_TIMESLICE, of a group, in the file that made it: std::uint64_t microseconds. 0.29-0.35 ms.
  kGroupSetSlice = 0xa06c0103,
  // NVA06C_CTRL_CMD_GET_TIMESLICE, likewise. 7 us; 2048 us by default.
  kGroupGetSlice = 0xa06c0104,
  kGroupPreempt = 0xa06c0105,        // NVA06C_CTRL_CMD_PREEMPT
  kGroupSetInterleave = 0xa06c0107,  // NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL
  kGroupRealtime = 0xa06c0110,       // NVA06C_CTRL_CMD_MAKE_REALTIME
  // NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, of a subdevice, from any client, with anybody's handles: DisableChannels. A
  // freeze takes 0.45-0.50 ms, a thaw 0.22-0.28 ms.
  kDisableChannels = 0x2080110b,
};

inline constexpr unsigned kMostGpus = 32;
inline constexpr std::uint32_t kNoGpu = 0xffffffff;
struct AttachedIds {  // NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS: of the whole machine, in a container too; kNoGpu ends
  std::uint32_t gpu[kMostGpus];
};
struct IdInfo {  // NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS: `gpu` in, the rest out
  std::uint32_t gpu, flags, device, subdevice, sli_status, board, instance;
  std::int32_t numa_node;
};
static_assert(sizeof(AttachedIds) == 128 && sizeof(IdInfo) == 32);

inline constexpr std::uint32_t kUuidBinary = 2;  // NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY, of type SHA-1
struct Uuid {                                    // NV2080_CTRL_GPU_GET_GID_INFO_PARAMS
  std::uint32_t index, flags, bytes;             // `bytes` out: 16, of `data`
  std::uint8_t data[256];
};
static_assert(sizeof(Uuid) == 268);

inline constexpr unsigned kMostChannels = 64;
struct DisableChannels {  // NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS
  std::uint8_t disable = 0;
  std::uint8_t pad[3] = {};
  std::uint32_t channels = 0;
  std::uint8_t only_scheduling = 0;  // 1: what runs stays until its slice ends
  std::uint8_t rewind = 0;
  std::uint8_t pad2[6] = {};
  std::uint64_t preempt_event = 0;
  std::uint32_t client[kMostChannels] = {};
  std::uint32_t channel[kMostChannels] = {};
};
static_assert(sizeof(DisableChannels) == 24 + 2 * 4 * kMostChannels);

}  // namespace tessera::channel::abi
