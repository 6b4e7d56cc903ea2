#include <string>

#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"
#include "face/text/request_bodies.h"
#include "server/control/drain_control.h"
#include "server/control/suspension_control.h"

namespace tessera::face {

using httplib::Request;
using httplib::Response;

// Each begins what takes longer, and answers how far that is.
void AddSuspensionRoutes(httplib::Server& server) {
  const std::string process = "/v1/processes/([0-9]{1,9})", vgpu = "/v1/vgpus/([^/]+)";
  const auto pid_of = [](const Request& request) { return server::Control::Subject(std::stoi(request.matches[1])); };
  const auto vgpu_of = [](const Request& request) { return server::Control::Subject(request.matches[1].str()); };
  const auto add = [&](const std::string& path, auto subject_of) {
    server.Post(path + "/suspend", [subject_of](const Request& request, Response& response) {
      using To = server::Suspensions::To;
      const auto file = ParseSuspension(request.body);
      if (!file) return Refuse(response, file.error());
      const auto begun =
          server::SuspensionControl(*asker).Suspend(subject_of(request), *file ? To::kFile : To::kMemory);
      ReplyList(response, "suspensions", begun, 202);
    });
    server.Post(path + "/resume", [subject_of](const Request& request, Response& response) {
      ReplyList(response, "suspensions", server::SuspensionControl(*asker).Resume(subject_of(request)), 202);
    });
    server.Post(path + "/migrate", [subject_of](const Request& request, Response& response) {
      const auto wish = ParseMigration(request.body);
      if (!wish) return Refuse(response, wish.error());
      const auto begun = server::SuspensionControl(*asker).Migrate(subject_of(request), wish->gpus, wish->dry_run);
      if (!begun) return Refuse(response, begun.error());
      Reply(response, ToJson(*begun), wish->dry_run ? 200 : 202);
    });
  };
  add(process, pid_of);
  add(vgpu, vgpu_of);
}

void AddDrainRoutes(httplib::Server& server) {
  const std::string gpu = "/v1/gpus/([^/]+)";
  server.Post(gpu + "/drain", [](const Request& request, Response& response) {
    const auto dry = ParseDryRun(request.body);
    if (!dry) return Refuse(response, dry.error());
    const auto begun = server::DrainControl(*asker).Drain(request.matches[1], *dry);
    if (!begun) return Refuse(response, begun.error());
    Reply(response, ToJson(*begun), *dry ? 200 : 202);
  });
  server.Post(gpu + "/undrain", [](const Request& request, Response& response) {
    ReplyNothing(response, server::DrainControl(*asker).Undrain(request.matches[1]));
  });
  server.Post("/v1/rebalance", [](const Request& request, Response& response) {
    const auto wish = ParseRoomWish(request.body);
    if (!wish) return Refuse(response, wish.error());
    const auto begun = server::DrainControl(*asker).MakeRoom(wish->request, wish->dry_run);
    if (!begun) return Refuse(response, begun.error());
    Reply(response, ToJson(*begun), wish->dry_run ? 200 : 202);
  });
}

}  // namespace tessera::face
