#include <optional>
#include <string>

#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"
#include "face/text/request_bodies.h"
#include "server/control/drain_control.h"

namespace tessera::face {

using httplib::Request;
using httplib::Response;

namespace {

void ReplyOne(Response& response, const Result<server::VGpuReport>& report, int status = 200) {
  if (!report) return Refuse(response, report.error());
  response.set_header("ETag", '"' + report->tag + '"');
  Reply(response, ToJson(*report), status);
}

// The tag in If-Match. None when there is no such header or it is "*", which every vGPU matches.
std::optional<std::string> TagAskedFor(const Request& request) {
  const std::string value = request.get_header_value("If-Match");
  if (value.empty() || value == "*") return std::nullopt;
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

void AddVGpuRoutes(httplib::Server& server) {
  server.Get("/v1/vgpus", [](const Request&, Response& response) { ReplyList(response, "vgpus", asker->VGpus()); });
  server.Post("/v1/vgpus", [](const Request& request, Response& response) {
    auto asked = ParseVGpuRequest(request.body);
    if (!asked) return Refuse(response, asked.error());
    ReplyOne(response, server::DrainControl(*asker).Create(*asked), 201);
  });
  constexpr const char* kOneVGpu = "/v1/vgpus/([^/]+)";
  server.Get(kOneVGpu, [](const Request& request, Response& response) {
    ReplyOne(response, asker->VGpuNamed(request.matches[1]));
  });
  server.Patch(kOneVGpu, [](const Request& request, Response& response) {
    auto asked = ParseVGpuRequest(request.body);
    if (!asked) return Refuse(response, asked.error());
    asked->if_tag = TagAskedFor(request);
    const bool wait = request.get_param_value("wait") != "false";
    ReplyOne(response, asker->Change(request.matches[1], *asked, wait));
  });
  server.Delete(kOneVGpu, [](const Request& request, Response& response) {
    auto removed = asker->Remove(request.matches[1], request.get_param_value("force") == "1", TagAskedFor(request));
    if (!removed) return Refuse(response, removed.error());
    response.status = 204;
  });
  for (const bool frozen : {true, false}) {
    server.Post(std::string("/v1/vgpus/([^/]+)") + (frozen ? "/freeze" : "/thaw"),
                [frozen](const Request& request, Response& response) {
                  ReplyNothing(response, asker->Freeze(request.matches[1].str(), frozen));
                });
  }
  // Moving takes long: the answer lists what was begun.
  server.Post("/v1/vgpus/([^/]+)/evict", [](const Request& request, Response& response) {
    const auto keep = ParseEviction(request.body);
    if (!keep) return Refuse(response, keep.error());
    ReplyList(response, "evictions", asker->Evict(request.matches[1].str(), *keep), 202);
  });
}

}  // namespace tessera::face
