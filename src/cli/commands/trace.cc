#include "cli/commands/trace.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/duration.h"
#include "cli/terminal/output.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::BoolField;
using client::Field;
using client::IntegerField;
using client::Json;

namespace {

Result<void> WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (file) file << text << std::flush;
  if (!file) return FailErrno("cannot write " + path, "choose another file with --output");
  return {};
}

std::string Summary(const Json& trace) {
  const Json& about = Field(trace, "otherData");
  const std::uint64_t begin = IntegerField(about, "begin_us"), end = IntegerField(about, "end_us");
  std::string text = FormatMicroseconds(end > begin ? end - begin : 0) + " of " +
                     std::to_string(IntegerField(about, "records")) + " records";
  if (!BoolField(about, "whole")) text += " (older records are no longer kept)";
  return text;
}

}  // namespace

Result<int> WriteTrace(const Common& common, const TraceChoices& choices) {
  const ApiClient api(common.RunDirectory());
  std::string path = "/v1/trace?saved=1";
  if (!choices.last) {
    const auto span = ParseDuration(!choices.lasts.empty() ? choices.lasts : choices.past);
    if (!span) return std::unexpected(span.error());
    // Fail before the wait if no daemon answers.
    if (auto there = api.Get("/healthz"); !there) return std::unexpected(there.error());
    if (!choices.lasts.empty()) std::this_thread::sleep_for(std::chrono::nanoseconds(*span));
    path = "/v1/trace?past_ms=" + std::to_string((*span + kMillisecond - 1) / kMillisecond);
  }
  // Written as it came: a JSON library would shorten its times.
  std::string text;
  const auto got = api.Follow(path, "application/json", [&text](std::string_view piece) { text += piece; });
  if (!got) return std::unexpected(got.error());
  const Json trace = Json::parse(text, nullptr, false);
  if (trace.is_discarded()) return Fail(EPROTO, "the daemon's answer is incomplete or not JSON", "try again");
  if (choices.output == "-") {
    Print(text);
    return 0;
  }
  if (auto written = WriteFile(choices.output, text); !written) return std::unexpected(written.error());
  Print(choices.output + ": " + Summary(trace) + "; open it at https://ui.perfetto.dev\n");
  return 0;
}

}  // namespace tessera::cli
