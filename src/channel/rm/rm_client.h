#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "base/result.h"
#include "channel/rm/rm_file.h"

namespace tessera::channel {

// Makes a control of `object` of `client`: what RM answers, or an error if the system had no such request.
Result<std::uint32_t> CallControl(RmFile& file, std::uint32_t client, std::uint32_t object, std::uint32_t command,
                                  void* params, std::size_t bytes);

// A client of ours with its objects, in a file of its own: they end with it. One thread at a time.
class RmClient {
 public:
  static Result<RmClient> Open(std::unique_ptr<RmFile> file);

  std::uint32_t handle() const { return handle_; }

  // `call` is what errors say: "make a device".
  template <typename Params>
  Result<void> Alloc(std::uint32_t parent, std::uint32_t object, std::uint32_t cls, Params params,
                     const std::string& call) {
    static_assert(std::is_trivially_copyable_v<Params>);
    return AllocBytes(parent, object, cls, &params, sizeof params, call);
  }
  // Frees the object's children, too. An object that cannot be freed ends with the client.
  void Free(std::uint32_t parent, std::uint32_t object);

  template <typename Params>
  Result<std::uint32_t> Control(std::uint32_t object, std::uint32_t command, Params& params) {
    static_assert(std::is_trivially_copyable_v<Params>);
    return CallControl(*file_, handle_, object, command, &params, sizeof params);
  }
  // The same for calls that have to succeed.
  template <typename Params>
  Result<void> Ask(std::uint32_t object, std::uint32_t command, Params& params, const std::string& call) {
    return Check(Control(object, command, params), call);
  }

 private:
  RmClient(std::unique_ptr<RmFile> file, std::uint32_t handle) : file_(std::move(file)), handle_(handle) {}
  Result<void> AllocBytes(std::uint32_t parent, std::uint32_t object, std::uint32_t cls, void* params,
                          std::size_t bytes, const std::string& call);
  static Result<void> Check(const Result<std::uint32_t>& status, const std::string& call);

  std::unique_ptr<RmFile> file_;
  std::uint32_t handle_;
};

}  // namespace tessera::channel
