#include "cdi/gate_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::cdi {
namespace {

using nlohmann::json;

const json& Field(const json& object, const char* field) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(field);
  return found == object.end() ? kNothing : *found;
}

// Whether some ioctls wait for the listener, and none is let through whatever its request is.
bool NotifiesOfIoctls(const json& profile) {
  bool notifies = false;
  for (const json& rule : Field(profile, "syscalls")) {
    const json& names = Field(rule, "names");
    if (!names.is_array() || std::ranges::find(names, json("ioctl")) == names.end()) continue;
    if (Field(rule, "action") == "SCMP_ACT_NOTIFY") {
      notifies = true;
    } else if (Field(rule, "args").empty()) {
      return false;
    }
  }
  return notifies;
}

}  // namespace

Result<void> CheckBehindGate(std::string_view config, const std::string& socket) {
  const json parsed = json::parse(config, nullptr, false);
  if (!parsed.is_object()) return Fail(EPROTO, "the container's config.json is no configuration");
  const json& profile = Field(Field(parsed, "linux"), "seccomp");
  if (Field(profile, "listenerPath") == socket && NotifiesOfIoctls(profile)) return {};
  return Fail(EPERM, "the vGPU is for containers behind the kernel gate only, and this one is not",
              "give it the seccomp profile that 'tessera cdi seccomp' writes; in a pod: securityContext.seccompProfile "
              "{type: Localhost, localhostProfile: tessera.json}, and not privileged");
}

Result<std::string> BundleIn(std::string_view state) {
  const json parsed = json::parse(state, nullptr, false);
  const json& bundle = Field(parsed, "bundle");
  if (!bundle.is_string()) return Fail(EPROTO, "the container's state names no bundle");
  return bundle.get<std::string>();
}

}  // namespace tessera::cdi
