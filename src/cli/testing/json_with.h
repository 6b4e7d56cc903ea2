#pragma once

#include <nlohmann/json.hpp>
#include <utility>

#include "client/json.h"

namespace tessera::cli {

// `object` with one field set.
inline client::Json With(client::Json object, const char* name, client::Json value) {
  object[name] = std::move(value);
  return object;
}

}  // namespace tessera::cli
