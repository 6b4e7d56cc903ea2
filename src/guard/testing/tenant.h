#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

#include "base/unique_fd.h"
#include "channel/rm/driver_abi.h"

namespace tessera::guard {

// A program behind the gate: a child of the test that has installed the filter. It uses system calls only, because it
// may be forked while other threads run.
class Tenant {
 public:
  // The body runs in the child once Go was called, and returns 0, or the line of what went wrong.
  explicit Tenant(const std::function<int()>& body);
  ~Tenant();

  // Whether seccomp user notification is permitted here; else TakeListener is empty.
  bool Permitted() const { return static_cast<bool>(listener_); }
  UniqueFd TakeListener() { return std::move(listener_); }
  void Go();
  // Waits for its end. The body's result; -1 if it was killed.
  int Wait();
  void Kill() const;
  pid_t Pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd listener_, socket_;
  int* result_;  // shared with the child
};

// For the body: requests as a driver library makes them. Each returns RM's status, or the negative errno value of
// ioctl(2).
struct Rm {
  int file = -1;
  std::uint32_t client = 0xc1d00001;

  std::int64_t Alloc(std::uint32_t parent, std::uint32_t* object, std::uint32_t cls, void* params,
                     std::uint32_t params_bytes) const;
  // The same in its older form.
  std::int64_t AllocShort(std::uint32_t parent, std::uint32_t* object, std::uint32_t cls, void* params,
                          std::uint32_t params_bytes, char type = 'F') const;
  std::int64_t Memory(std::uint32_t object, std::uint64_t bytes) const;
  std::int64_t Control(std::uint32_t object, std::uint32_t command, void* params, std::uint32_t params_bytes) const;
  std::int64_t Free(std::uint32_t object) const;
  std::int64_t Dup(std::uint32_t object, std::uint32_t source_client, std::uint32_t source_object) const;
};

inline constexpr std::uint64_t kMiB = 1 << 20;

}  // namespace tessera::guard

// In a body: leave it with this line unless `condition` holds.
#define TENANT_CHECK(condition)        \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (false)
