#include "kubernetes/containers/key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/json_fields.h"

namespace tessera::kubernetes {

using client::Field;
using client::Json;

namespace {

std::string KeyIn(const std::string& cdi_file) {
  constexpr std::string_view kVariable = "TESSERA_VGPU=";
  std::ifstream file(cdi_file);
  const Json spec = Json::parse(file, nullptr, false);
  for (const Json& device : Field(spec, "devices")) {
    for (const Json& variable : Field(Field(device, "containerEdits"), "env")) {
      const std::string text = variable.is_string() ? variable.get<std::string>() : "";
      const std::size_t colon = text.find(':');
      if (text.starts_with(kVariable) && colon != text.npos) return text.substr(colon + 1);
    }
  }
  return {};
}

}  // namespace

Result<std::string> NewKey() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return FailErrno("cannot make a key");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

Result<std::string> KeyFor(const std::string& cdi_file) {
  std::string key = KeyIn(cdi_file);
  return key.empty() ? NewKey() : Result<std::string>(std::move(key));
}

}  // namespace tessera::kubernetes
