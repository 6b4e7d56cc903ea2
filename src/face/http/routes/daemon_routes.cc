#include <unistd.h>

#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"
#include "face/text/metrics.h"
#include "wire/protocol.h"

namespace tessera::face {

using httplib::Request;
using httplib::Response;
using nlohmann::json;

void AddDaemonRoutes(httplib::Server& server, const server::Control& control) {
  server.Get("/healthz", [&control](const Request&, Response& response) {
    Reply(response, {{"status", "ok"},
                     {"version", TESSERA_VERSION},
                     {"protocol", wire::kProtocolVersion},
                     {"soft", control.Traits().soft},
                     {"pid", getpid()},
                     {"embedded", control.Traits().embedded}});
  });
  server.Get("/metrics", [](const Request& request, Response& response) {
    const auto report = asker->All();
    if (!report) return Refuse(response, report.error());
    const MetricsFormat format = ChooseFormat(request.get_header_value("Accept"));
    response.set_content(WriteMetrics(*report, format), ContentType(format));
  });
  server.Get("/v1/gpus", [](const Request&, Response& response) { ReplyList(response, "gpus", asker->Gpus()); });
  server.Post("/v1/reload", [](const Request&, Response& response) {
    const auto changes = asker->Reload();
    if (!changes) return Refuse(response, changes.error());
    json list = json::array();
    for (const server::ConfigChange& change : *changes)
      list.push_back({{"key", change.key}, {"from", change.from}, {"to", change.to}, {"live", change.live}});
    Reply(response, {{"changes", std::move(list)}});
  });
  server.Get("/v1/doctor", [](const Request&, Response& response) { ReplyList(response, "checks", asker->Checks()); });
}

}  // namespace tessera::face
