#include "cli/commands/events.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/terminal/output.h"
#include "cli/terminal/printable.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

constexpr int kListed = 100, kBeforeFollowing = 10;

void PrintEvent(const Json& event, bool as_json) {
  if (as_json) {
    Print(event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  } else if (const std::uint64_t lost = IntegerField(event, "lost"); lost > 0) {
    Print("(" + std::to_string(lost) + " events lost: this program read too slowly)\n");
  } else {
    Print(FormatEvent(event) + "\n");
  }
  std::fflush(stdout);
}

}  // namespace

std::string FormatEvent(const Json& event) {
  constexpr std::size_t kTypeWidth = 17;  // of the longest
  std::string type = TextField(event, "type");
  if (type.size() < kTypeWidth) type.resize(kTypeWidth, ' ');
  std::string line =
      FormatLocalTime(static_cast<std::int64_t>(IntegerField(event, "time_us")), "%b %d %H:%M:%S") + "  " + type;
  const auto add = [&line](const std::string& word) {
    if (!word.empty()) line += "  " + word;
  };
  add(TextField(event, "vgpu"));
  if (!Field(event, "pid").is_null()) add("process " + std::to_string(IntegerField(event, "pid")));
  if (!Field(event, "gpu").is_null()) add("GPU " + std::to_string(IntegerField(event, "gpu")));
  add(Printable(TextField(event, "text")));
  return line;
}

std::vector<Json> TakeEvents(std::string& text) {
  std::vector<Json> events;
  for (std::size_t end; (end = text.find("\n\n")) != std::string::npos; text.erase(0, end + 2)) {
    const bool lost = text.starts_with("event: lost\n");
    const std::size_t data = text.find("data: ");
    if (data == std::string::npos || data > end) continue;  // a comment, or a setting
    Json event = Json::parse(text.substr(data + 6, end - data - 6), nullptr, false);
    if (!event.is_object()) continue;
    events.push_back(lost ? Json{{"lost", IntegerField(event, "events")}} : std::move(event));
  }
  return events;
}

Result<int> ShowEvents(const Common& common, const EventChoices& choices) {
  const ApiClient api(common.RunDirectory());
  const int last = choices.last >= 0 ? choices.last : choices.follow ? kBeforeFollowing : kListed;
  const std::string path = "/v1/events?last=" + std::to_string(last);
  if (!choices.follow) {
    const auto answer = api.Get(path);
    if (!answer) return std::unexpected(answer.error());
    if (common.json) {
      PrintJson(*answer);
      return 0;
    }
    for (const Json& event : Field(*answer, "events")) PrintEvent(event, false);
    return 0;
  }
  std::string text;
  auto ended = api.Follow(path, "text/event-stream", [&](std::string_view piece) {
    text += piece;
    for (const Json& event : TakeEvents(text)) PrintEvent(event, common.json);
  });
  if (!ended) return std::unexpected(ended.error());
  return Fail(ECONNRESET, "the daemon closed the connection: it ended, or this program read too slowly",
              "run this command again");
}

}  // namespace tessera::cli
