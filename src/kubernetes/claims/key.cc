#include "kubernetes/claims/key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <array>

namespace tessera::kubernetes {

Result<std::string> NewKey() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return FailErrno("cannot make a key");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace tessera::kubernetes
