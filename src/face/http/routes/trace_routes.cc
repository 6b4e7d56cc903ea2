#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"
#include "face/text/trace_json.h"

namespace tessera::face {

using httplib::Request;
using httplib::Response;

void AddTraceRoutes(httplib::Server& server) {
  server.Get("/v1/trace", [](const Request& request, Response& response) {
    constexpr Nanos kMinute = 60 * kSecond;
    const bool saved = request.get_param_value("saved") == "1";
    const std::string text = request.get_param_value("past_ms");
    if (text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
      return Refuse(response, {EINVAL, "invalid past_ms", "send a number of milliseconds"});
    const Nanos past = text.empty() ? kMinute : std::stol(text) * kMillisecond;
    const auto trace = asker->Trace(saved ? std::nullopt : std::optional(past));
    if (!trace) return Refuse(response, trace.error());
    std::vector<server::Event> events;
    if (!saved) {
      auto all = asker->Events(0, server::events::kKept);
      if (!all) return Refuse(response, all.error());
      events = std::move(all->events);
      std::erase_if(events, [begin = (trace->now - past + trace->wall) / kMicrosecond](const server::Event& event) {
        return event.time_us < begin;
      });
    }
    response.set_content(WriteTrace(*trace, events), "application/json");
  });
}

}  // namespace tessera::face
