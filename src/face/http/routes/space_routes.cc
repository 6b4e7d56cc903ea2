#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"
#include "face/text/request_bodies.h"
#include "server/daemon/space_control.h"

namespace tessera::face {

using httplib::Request;
using httplib::Response;

void AddSpaceRoutes(httplib::Server& server) {
  server.Get("/v1/spaces", [](const Request&, Response& response) {
    ReplyList(response, "spaces", server::SpaceControl(*asker).All());
  });
  server.Post("/v1/spaces", [](const Request& request, Response& response) {
    const auto asked = ParseSpaceRequest(request.body);
    if (!asked) return Refuse(response, asked.error());
    const auto made = server::SpaceControl(*asker).Create(asked->name, asked->gpu);
    if (!made) return Refuse(response, made.error());
    Reply(response, ToJson(*made), 201);
  });
  constexpr const char* kOneSpace = "/v1/spaces/([^/]+)";
  server.Get(kOneSpace, [](const Request& request, Response& response) {
    const auto space = server::SpaceControl(*asker).Named(request.matches[1]);
    if (!space) return Refuse(response, space.error());
    Reply(response, ToJson(*space));
  });
  server.Delete(kOneSpace, [](const Request& request, Response& response) {
    ReplyNothing(response, server::SpaceControl(*asker).Remove(request.matches[1]));
  });
}

}  // namespace tessera::face
