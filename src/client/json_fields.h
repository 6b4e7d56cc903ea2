// Readers for fields of the daemon's answers. A field that is missing or of another type reads as its default, so that
// a daemon of another version cannot crash its clients.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "client/json.h"

namespace tessera::client {

inline const Json& Field(const Json& object, const char* name) {
  static const Json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

inline std::string TextField(const Json& object, const char* name, const std::string& otherwise = {}) {
  const Json& value = Field(object, name);
  return value.is_string() ? value.get<std::string>() : otherwise;
}

inline std::uint64_t IntegerField(const Json& object, const char* name) {
  const Json& value = Field(object, name);
  const bool fits = value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
  return fits ? value.get<std::uint64_t>() : 0;
}

inline double NumberField(const Json& object, const char* name) {
  const Json& value = Field(object, name);
  return value.is_number() ? value.get<double>() : 0;
}

// The texts of an array, as words for people: "operator, policy". Empty for anything else.
inline std::string TextsField(const Json& object, const char* name) {
  const Json& values = Field(object, name);
  std::string texts;
  if (!values.is_array()) return texts;
  for (const Json& value : values) {
    if (value.is_string()) texts += (texts.empty() ? "" : ", ") + value.get<std::string>();
  }
  return texts;
}

inline bool BoolField(const Json& object, const char* name) {
  const Json& value = Field(object, name);
  return value.is_boolean() && value.get<bool>();
}

}  // namespace tessera::client
