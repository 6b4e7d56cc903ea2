#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "face/http/event_streams.h"
#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"

namespace tessera::face {

using httplib::Request;
using httplib::Response;
using nlohmann::json;

namespace {

// The parameter `last`: how many of the past events to answer with. nullopt if it is malformed.
std::optional<std::uint64_t> LastAskedFor(const Request& request, std::uint64_t otherwise) {
  if (!request.has_param("last")) return otherwise;
  const std::string text = request.get_param_value("last");
  if (text.empty() || text.size() > 4 || text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoul(text);
}

}  // namespace

void AddEventRoutes(httplib::Server& server, EventStreams& streams) {
  server.Get("/v1/events", [&streams](const Request& request, Response& response) {
    constexpr std::uint64_t kListed = 100;
    const bool follows = request.get_header_value("Accept").find("text/event-stream") != std::string::npos;
    const auto last = LastAskedFor(request, follows ? 0 : kListed);
    if (!last) return Refuse(response, {EINVAL, "invalid last", "send a number from 0 to 9999"});
    const auto seen = asker->Events(0, server::events::kKept);
    if (!seen) return Refuse(response, seen.error());
    const std::vector<server::Event>& events = seen->events;
    const std::size_t first = events.size() - std::min<std::size_t>(events.size(), *last);
    if (!follows) {
      json list = json::array();
      for (std::size_t i = first; i < events.size(); ++i) list.push_back(ToJson(events[i]));
      return Reply(response, {{"events", std::move(list)}});
    }
    std::uint64_t after = first < events.size() ? events[first].number - 1 : seen->upto;
    auto place = streams.TakePlace(asker->Who().IsOperator() ? std::nullopt : std::optional(asker->Who().uid));
    if (!place)
      return Refuse(response, {EAGAIN, "too many clients follow the events", "end one of them, or poll /v1/events"},
                    503);
    if (request.has_header("Last-Event-ID")) after = NumberOfEventId(request.get_header_value("Last-Event-ID"));
    if (request.method == "GET") following.emplace(std::move(*place), after);
    response.set_header("Cache-Control", "no-store");
    // Only the head is written here; EventStreams writes the body.
    response.set_content_provider("text/event-stream", [](std::size_t, httplib::DataSink&) { return false; });
  });
}

}  // namespace tessera::face
