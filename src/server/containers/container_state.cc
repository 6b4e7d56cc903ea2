#include "server/containers/container_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tessera::server {

using Json = nlohmann::json;

namespace {

constexpr std::size_t kMostConfigBytes = 4 << 20;

const Json& Field(const Json& object, const char* field) {
  static const Json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(field);
  return found == object.end() ? kNothing : *found;
}

std::string TextOf(const Json& object, const char* field) {
  const Json& value = Field(object, field);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

Result<ContainerState> ParseContainerState(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto wrong = [](const char* what) { return Fail(EPROTO, std::string("a container's state ") + what); };
  if (!json.is_object()) return wrong("is not a JSON object");
  const Json &fds = Field(json, "fds"), &pid = Field(json, "pid"), &inner = Field(json, "state");
  if (!fds.is_array()) return wrong("names no descriptors");
  const auto listener = std::ranges::find(fds, Json("seccompFd"));
  if (listener == fds.end()) return wrong("names no seccompFd");
  if (!pid.is_number_integer() || pid.get<std::int64_t>() <= 0 || pid.get<std::int64_t>() > INT32_MAX)
    return wrong("has no pid");
  ContainerState state{.id = TextOf(inner, "id"),
                       .bundle = TextOf(inner, "bundle"),
                       .metadata = TextOf(json, "metadata"),
                       .pid = pid.get<pid_t>(),
                       .listener = static_cast<std::size_t>(listener - fds.begin())};
  std::erase_if(state.id, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  state.id.resize(std::min<std::size_t>(state.id.size(), 64));
  return state;
}

Result<std::string> VariableIn(std::string_view config, std::string_view name) {
  const Json json = Json::parse(config, nullptr, false);
  const Json& variables = Field(Field(json, "process"), "env");
  if (!variables.is_array()) return Fail(EPROTO, "a container's config.json has no process.env");
  std::string value;
  for (const Json& each : variables) {
    const std::string text = each.is_string() ? each.get<std::string>() : std::string();
    const std::size_t equals = text.find('=');
    if (equals != text.npos && std::string_view(text).substr(0, equals) == name) value = text.substr(equals + 1);
  }
  return value;
}

Result<std::string> ReadConfig(const std::string& bundle, pid_t runtime) {
  const std::array paths{fmt::format("/proc/{}/root{}/config.json", runtime, bundle), bundle + "/config.json"};
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::string text(kMostConfigBytes + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.gcount() == 0) continue;
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMostConfigBytes) return Fail(EFBIG, path + " is larger than any container's config.json");
    return text;
  }
  return FailErrno("cannot read " + paths.back());
}

}  // namespace tessera::server
