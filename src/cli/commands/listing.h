// Parts of the commands that list things: the request, and texts of fields of the answer. A figure that the daemon does
// not know is null, and its text is empty.
#pragma once

#include <string>

#include "base/result.h"
#include "base/size.h"
#include "cli/launch/common.h"
#include "cli/terminal/output.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {

inline std::string Count(const client::Json& object, const char* name) {
  return client::Field(object, name).is_null() ? "" : std::to_string(client::IntegerField(object, name));
}
inline std::string Size(const client::Json& object, const char* name) {
  return client::Field(object, name).is_null() ? "" : FormatSize(client::IntegerField(object, name));
}
inline std::string Percent(const client::Json& object, const char* name) {
  return client::Field(object, name).is_null() ? "" : FormatPercent(client::NumberField(object, name));
}
inline std::string Time(const client::Json& object, const char* name) {
  return client::Field(object, name).is_null() ? "" : FormatMicroseconds(client::IntegerField(object, name));
}

// How a process on its way off its GPUs or back is called: "suspended" while nothing of it is there, "suspended (idle)"
// if its first call brings it back, else "moving". Empty: it is on them.
inline std::string SuspensionWord(const client::Json& object) {
  const std::string phase = client::TextField(object, "suspension");
  if (phase == "suspended" && client::TextField(object, "suspended_by") == "idle") return "suspended (idle)";
  return phase.empty() || phase == "suspended" ? phase : "moving";
}

// The state of a vGPU or a process. A GPU that has failed comes first, then a freeze.
inline std::string State(const client::Json& object) {
  if (client::BoolField(object, "gpu_failed")) return "failed";
  if (const std::string word = SuspensionWord(object); !word.empty()) return word;
  return client::TextsField(object, "frozen").empty() ? client::TextField(object, "state") : "frozen";
}

// Asks for the path, and prints the answer as JSON, or its array by `print`.
template <typename Printer>
Result<int> List(const Common& common, const std::string& path, const char* array, Printer print) {
  const auto answer = client::ApiClient(common.RunDirectory()).Get(path);
  if (!answer) return std::unexpected(answer.error());
  if (common.json) {
    PrintJson(*answer);
  } else {
    print(client::Field(*answer, array));
  }
  return 0;
}

}  // namespace tessera::cli
