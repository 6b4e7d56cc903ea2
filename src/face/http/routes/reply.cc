#include "face/http/routes/reply.h"

namespace tessera::face {

void Reply(httplib::Response& response, const nlohmann::json& body, int status, const char* type) {
  response.status = status;
  // Names of programs may hold any bytes.
  response.set_content(body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", type);
}

void Refuse(httplib::Response& response, const Error& error, int status) {
  Reply(response, ToProblem(error, status), status, "application/problem+json");
}

void Refuse(httplib::Response& response, const Error& error) { Refuse(response, error, StatusFor(error.code)); }

void ReplyNothing(httplib::Response& response, const Result<void>& done) {
  if (!done) return Refuse(response, done.error());
  response.status = 204;
}

}  // namespace tessera::face
