#include "channel/rm/rm_client.h"

#include <sys/ioctl.h>

#include "channel/rm/driver_abi.h"
#include "channel/rm/rm_status.h"

namespace tessera::channel {
namespace {

template <typename Argument>
constexpr unsigned long Request(unsigned number) {
  return _IOC(_IOC_READ | _IOC_WRITE, abi::kIoctlType, number, sizeof(Argument));
}

std::uint64_t Address(const void* params) { return reinterpret_cast<std::uint64_t>(params); }

}  // namespace

Result<std::uint32_t> CallControl(RmFile& file, std::uint32_t client, std::uint32_t object, std::uint32_t command,
                                  void* params, std::size_t bytes) {
  abi::Control control = {.client = client,
                          .object = object,
                          .command = command,
                          .params = Address(params),
                          .params_bytes = static_cast<std::uint32_t>(bytes)};
  if (const auto called = file.Call(Request<abi::Control>(abi::kControl), &control); !called) {
    return std::unexpected(called.error());
  }
  return control.status;
}

Result<RmClient> RmClient::Open(std::unique_ptr<RmFile> file) {
  std::uint32_t handle = 0;
  abi::Alloc alloc = {.cls = abi::kRoot, .params = Address(&handle), .params_bytes = sizeof handle};
  if (const auto called = file->Call(Request<abi::Alloc>(abi::kAlloc), &alloc); !called) {
    return std::unexpected(called.error());
  }
  if (const auto made = CheckStatus(alloc.status, "make a client"); !made) return std::unexpected(made.error());
  return RmClient(std::move(file), alloc.object);
}

Result<void> RmClient::AllocBytes(std::uint32_t parent, std::uint32_t object, std::uint32_t cls, void* params,
                                  std::size_t bytes, const std::string& call) {
  abi::Alloc alloc = {.root = handle_,
                      .parent = parent,
                      .object = object,
                      .cls = cls,
                      .params = Address(params),
                      .params_bytes = static_cast<std::uint32_t>(bytes)};
  if (const auto called = file_->Call(Request<abi::Alloc>(abi::kAlloc), &alloc); !called) return called;
  return CheckStatus(alloc.status, call);
}

void RmClient::Free(std::uint32_t parent, std::uint32_t object) {
  abi::Free free = {.root = handle_, .parent = parent, .object = object};
  static_cast<void>(file_->Call(Request<abi::Free>(abi::kFree), &free));
}

Result<void> RmClient::Check(const Result<std::uint32_t>& status, const std::string& call) {
  if (!status) return std::unexpected(status.error());
  return CheckStatus(*status, call);
}

}  // namespace tessera::channel
