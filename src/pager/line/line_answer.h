#pragma once

#include <vector>

#include "base/unique_fd.h"
#include "wire/line.h"

namespace tessera::pager {

// A message to the mover with the descriptors that go along.
struct LineAnswer {
  wire::LineMessage message;
  std::vector<UniqueFd> fds;
};

}  // namespace tessera::pager
