#include "channel/rm/rm_status.h"

#include <cstdio>

#include "channel/rm/driver_abi.h"

namespace tessera::channel {
namespace {

struct Row {
  std::uint32_t status;
  const char* name;
  int code;
};

// The statuses that the calls of this folder can meet. Names and numbers: nvstatuscodes.h of NVIDIA's open kernel
// modules.
constexpr Row kRows[] = {
    {0x02, "NV_ERR_BUFFER_TOO_SMALL", EPROTO},
    {0x03, "NV_ERR_BUSY_RETRY", EAGAIN},
    {0x0f, "NV_ERR_GPU_IS_LOST", ENODEV},
    {0x10, "NV_ERR_GPU_IN_FULLCHIP_RESET", EIO},
    {0x11, "NV_ERR_GPU_NOT_FULL_POWER", EIO},
    {0x17, "NV_ERR_IN_USE", EBUSY},
    {0x19, "NV_ERR_INSERT_DUPLICATE_NAME", EEXIST},
    {0x1a, "NV_ERR_INSUFFICIENT_RESOURCES", ENOSPC},
    {abi::kInsufficientPermissions, "NV_ERR_INSUFFICIENT_PERMISSIONS", EPERM},
    {0x1d, "NV_ERR_INVALID_ACCESS_TYPE", EPERM},
    {abi::kInvalidArgument, "NV_ERR_INVALID_ARGUMENT", EINVAL},
    {abi::kInvalidChannel, "NV_ERR_INVALID_CHANNEL", ENOENT},
    {0x22, "NV_ERR_INVALID_CLASS", EPROTO},
    {abi::kInvalidClient, "NV_ERR_INVALID_CLIENT", ENOENT},
    {0x24, "NV_ERR_INVALID_COMMAND", EPROTO},
    {0x26, "NV_ERR_INVALID_DEVICE", ENODEV},
    {abi::kInvalidObject, "NV_ERR_INVALID_OBJECT", ENOENT},
    {abi::kInvalidObjectHandle, "NV_ERR_INVALID_OBJECT_HANDLE", ENOENT},
    {abi::kInvalidObjectParent, "NV_ERR_INVALID_OBJECT_PARENT", ENOENT},
    {0x3a, "NV_ERR_INVALID_PARAM_STRUCT", EPROTO},
    {0x3b, "NV_ERR_INVALID_PARAMETER", EINVAL},
    {0x3f, "NV_ERR_INVALID_REQUEST", EINVAL},
    {0x40, "NV_ERR_INVALID_STATE", EINVAL},
    {abi::kNoMemory, "NV_ERR_NO_MEMORY", ENOMEM},
    {0x55, "NV_ERR_NOT_READY", EAGAIN},
    {abi::kNotSupported, "NV_ERR_NOT_SUPPORTED", EOPNOTSUPP},
    {abi::kObjectNotFound, "NV_ERR_OBJECT_NOT_FOUND", ENOENT},
    {0x59, "NV_ERR_OPERATING_SYSTEM", EIO},
    {0x62, "NV_ERR_RESET_REQUIRED", EIO},
    {0x63, "NV_ERR_STATE_IN_USE", EBUSY},
    {0x65, "NV_ERR_TIMEOUT", ETIMEDOUT},
    {0x66, "NV_ERR_TIMEOUT_RETRY", ETIMEDOUT},
    {0x6a, "NV_ERR_LIB_RM_VERSION_MISMATCH", EPROTO},
    {0xffff, "NV_ERR_GENERIC", EIO},
};

const Row* Find(std::uint32_t status) {
  for (const Row& row : kRows) {
    if (row.status == status) return &row;
  }
  return nullptr;
}

}  // namespace

const char* StatusName(std::uint32_t status) {
  if (status == abi::kOk) return "NV_OK";
  const Row* row = Find(status);
  return row == nullptr ? nullptr : row->name;
}

Result<void> CheckStatus(std::uint32_t status, const std::string& call) {
  if (status == abi::kOk) return {};
  char number[16];
  std::snprintf(number, sizeof number, "0x%x", status);
  const Row* row = Find(status);
  const std::string name = row == nullptr ? "" : std::string(row->name) + ", ";
  const int code = row == nullptr ? EIO : row->code;
  return Fail(code, call + ": the NVIDIA driver answers " + name + "status " + number,
              code == EPERM ? "run the daemon as root" : "");
}

}  // namespace tessera::channel
