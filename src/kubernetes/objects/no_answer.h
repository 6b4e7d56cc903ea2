#pragma once

#include "base/result.h"
#include "client/json.h"

namespace tessera::kubernetes {

// Whether a call succeeded whose answer nobody needs.
inline Result<void> NoAnswer(const Result<client::Json>& answer) {
  if (!answer) return std::unexpected(answer.error());
  return {};
}

}  // namespace tessera::kubernetes
