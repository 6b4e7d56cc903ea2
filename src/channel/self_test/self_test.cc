#include "channel/self_test/self_test.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::channel {
namespace {

using Json = nlohmann::ordered_json;

// Text of a driver may be anything; JSON is UTF-8.
std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string TextOf(const Json& json, const char* field) {
  const auto found = json.find(field);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// Negative if it is not there or makes no sense.
Nanos TimeOf(const Json& json, const char* field) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_number_integer()) return -1;
  const auto microseconds = found->get<std::int64_t>();
  return microseconds > 60'000'000 ? -1 : microseconds * kMicrosecond;
}

}  // namespace

std::string FormatSelfTest(const SelfTest& test) {
  return Dump({{"ok", true},
               {"driver", test.driver},
               {"slice_us", test.slice / kMicrosecond},
               {"freeze_us", test.freeze / kMicrosecond},
               {"thaw_us", test.thaw / kMicrosecond}});
}

std::string FormatFailedSelfTest(std::string_view step, std::string_view why) {
  return Dump({{"ok", false}, {"step", step}, {"why", why}});
}

Result<SelfTest> ParseSelfTest(std::string_view line) {
  const auto unknown = [&] {
    return Fail(EPROTO, "tessera-channel-test said '" + std::string(line.substr(0, 200)) + "'");
  };
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("ok") || !json["ok"].is_boolean()) return unknown();
  if (!json["ok"].get<bool>()) {
    return Fail(ENOTSUP, "channel control fails its test at '" + TextOf(json, "step") + "': " + TextOf(json, "why"));
  }
  SelfTest test = {.driver = TextOf(json, "driver"),
                   .slice = TimeOf(json, "slice_us"),
                   .freeze = TimeOf(json, "freeze_us"),
                   .thaw = TimeOf(json, "thaw_us")};
  if (test.driver.empty() || test.slice < 0 || test.freeze < 0 || test.thaw < 0) return unknown();
  return test;
}

std::string DriverVersion(std::string_view text) {
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build …": the first word that is one.
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    const std::string_view word = text.substr(0, end);
    const bool digits = word.find_first_not_of("0123456789.") == std::string_view::npos;
    if (digits && word.find('.') != std::string_view::npos && word.front() != '.') return std::string(word);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return "";
}

}  // namespace tessera::channel
