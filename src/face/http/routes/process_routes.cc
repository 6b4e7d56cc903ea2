#include <sys/types.h>

#include <cerrno>
#include <string>

#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"
#include "face/text/request_bodies.h"

namespace tessera::face {

using httplib::Request;
using httplib::Response;

void AddProcessRoutes(httplib::Server& server) {
  server.Get("/v1/processes",
             [](const Request&, Response& response) { ReplyList(response, "processes", asker->Processes()); });
  // One process may use several GPUs.
  server.Get("/v1/processes/([0-9]{1,9})", [](const Request& request, Response& response) {
    const pid_t pid = std::stoi(request.matches[1]);
    const auto processes = asker->Processes(pid);
    if (processes && processes->empty())
      return Refuse(response, {ENOENT, "process " + std::to_string(pid) + " uses no GPU", "see 'tessera ps'"});
    ReplyList(response, "processes", processes);
  });
  for (const bool frozen : {true, false}) {
    server.Post(std::string("/v1/processes/([0-9]{1,9})") + (frozen ? "/freeze" : "/thaw"),
                [frozen](const Request& request, Response& response) {
                  ReplyNothing(response, asker->Freeze(std::stoi(request.matches[1]), frozen));
                });
  }
  // Moving takes long: the answer lists what was begun.
  server.Post("/v1/processes/([0-9]{1,9})/evict", [](const Request& request, Response& response) {
    const auto keep = ParseEviction(request.body);
    if (!keep) return Refuse(response, keep.error());
    ReplyList(response, "evictions", asker->Evict(std::stoi(request.matches[1]), *keep), 202);
  });
  server.Post("/v1/processes/([0-9]{1,9})/adopt", [](const Request& request, Response& response) {
    auto vgpu = ParseAdoption(request.body);
    if (!vgpu) return Refuse(response, vgpu.error());
    auto adopted = asker->Adopt(std::stoi(request.matches[1]), *vgpu);
    if (!adopted) return Refuse(response, adopted.error());
    Reply(response, ToJson(*adopted));
  });
}

}  // namespace tessera::face
