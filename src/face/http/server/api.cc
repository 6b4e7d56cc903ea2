#include "face/http/server/api.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "face/http/origin.h"
#include "face/http/page_answers.h"
#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"
#include "face/http/tcp.h"

namespace tessera::face {
namespace {

using httplib::Request;
using httplib::Response;

constexpr const char* kPaths =
    "GET /, /healthz, /metrics, /v1/doctor, /v1/events, /v1/gpus, /v1/overview, /v1/timeline, /v1/trace, "
    "/v1/vgpus[/NAME], /v1/spaces[/NAME] and "
    "/v1/processes[/PID], POST /v1/vgpus, /v1/spaces, /v1/rebalance and /v1/reload, DELETE /v1/spaces/NAME, PATCH and "
    "DELETE "
    "/v1/vgpus/NAME, POST /v1/vgpus/NAME/freeze, /thaw, /evict, /suspend, /resume and /migrate, and "
    "POST /v1/gpus/GPU/drain and /undrain, POST /v1/processes/PID/freeze, /thaw, /evict, /suspend, /resume, /migrate "
    "and /adopt exist";

// Takes out of a request what would cost too much. Ranges: a thousand, each of the whole, would make an answer a
// thousand times as long. Brotli: httplib compresses as well as it can, which takes 70 ms where gzip takes 0.3.
void Simplify(Request& request) {
  request.ranges.clear();
  const bool gzip = request.get_header_value("Accept-Encoding").find("gzip") != std::string::npos;
  request.headers.erase("Accept-Encoding");
  if (gzip) request.headers.emplace("Accept-Encoding", "gzip");
}

RequestOrigin OriginOf(const Request& request) {
  return {.host = request.get_header_value("Host"),
          .origin = request.get_header_value("Origin"),
          .fetch_site = request.get_header_value("Sec-Fetch-Site")};
}

// The error for a request that httplib itself refuses.
Error ErrorFor(const Request& request, int status) {
  switch (status) {
    case 404:
      return {ENOENT, "no such path: " + request.path, kPaths};
    case 413:
      return {EMSGSIZE, "the request is too long", "send a body of at most 64 KiB"};
    default:
      return {EINVAL, "unrecognised request", ""};
  }
}

// What a request without the token asks for.
server::Operation OperationOf(const Request& request) {
  if (IsForPage(request)) return server::Operation::kSeePage;
  // All others need the token, whatever they ask for.
  return request.path == "/healthz" ? server::Operation::kHealth : server::Operation::kReload;
}

}  // namespace

Api::Api(server::Control& control) : control_(control), stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  set_payload_max_length(kMostBodyBytes);
  AddRoutes();
  AddWrongMethods();
  AddRefusals();
}

void Api::Answer(UniqueFd socket, std::optional<server::Control> control) {
  if (control) asker.emplace(std::move(*control));
  PeerStream stream(std::move(socket), stop_fd_.Get());
  bool closed = false;
  process_request(stream, /*close_connection=*/true, closed, Simplify);
  if (auto taken = std::exchange(following, {}))
    streams_.Add(std::move(taken->place), std::move(stream).Release(), taken->after);
  asker.reset();
}

void Api::Interrupt() { eventfd_write(stop_fd_.Get(), 1); }

void Api::SetToken(std::string token) {
  const MutexLock lock(token_mutex_);
  token_ = std::move(token);
}

bool Api::MayAsk(const Request& request) {
  if (asker) return true;
  const MutexLock lock(token_mutex_);
  if (!IsBearer(request.get_header_value("Authorization"), token_)) return server::RuleOf(OperationOf(request)).nobody;
  asker.emplace(control_);
  return true;
}

void Api::AddRoutes() {
  AddDaemonRoutes(*this, control_);
  AddVGpuRoutes(*this);
  AddProcessRoutes(*this);
  AddPageRoutes(*this, figures_);
  AddSpaceRoutes(*this);
  AddSuspensionRoutes(*this);
  AddDrainRoutes(*this);
  AddEventRoutes(*this, streams_);
  AddTraceRoutes(*this);
}

// httplib answers 404 for a known path with another method.
void Api::AddWrongMethods() {
  const httplib::Server::Handler wrong_method = [](const Request& request, Response& response) {
    Refuse(response, {EOPNOTSUPP, "method " + request.method + " is not allowed for " + request.path, kPaths});
  };
  constexpr const char* kLists =
      "/|/page/.*|/healthz|/metrics|/v1/(events|gpus|overview|processes|timeline|trace|vgpus)";
  Post("/|/page/.*|/healthz|/metrics|/v1/(events|gpus|overview|processes|timeline|trace)|/v1/vgpus/[^/]+",
       wrong_method);
  Put(std::string(kLists) + "|/v1/vgpus/[^/]+", wrong_method);
  Patch(kLists, wrong_method);
  Delete(kLists, wrong_method);
  Get("/v1/reload", wrong_method);
}

void Api::AddRefusals() {
  // Checked before routing, so that a client without the token cannot probe for paths. Without a length, httplib would
  // read until the client closes, while the client waits for the answer.
  set_pre_routing_handler([this](const Request& request, Response& response) {
    // By TCP the token says who asks; no other page has it.
    if (const auto own = asker ? CheckOrigin(OriginOf(request)) : Result<void>(); !own) {
      Refuse(response, own.error());
      return HandlerResponse::Handled;
    }
    if (!MayAsk(request)) {
      response.set_header("WWW-Authenticate", "Bearer");
      Refuse(response, {EACCES, "token missing or wrong", "send the header Authorization: Bearer TOKEN"}, 401);
      return HandlerResponse::Handled;
    }
    const bool has_length = request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
    if (request.method == "GET" || request.method == "HEAD" || request.method == "DELETE" || has_length)
      return HandlerResponse::Unhandled;
    Refuse(response, {EINVAL, "the request has no body", "send a JSON object"});
    return HandlerResponse::Handled;
  });
  set_post_routing_handler([this](const Request& request, Response& response) {
    response.set_header("X-Content-Type-Options", "nosniff");  // no answer is anything but what it says
    if (request.method == "GET" || request.method == "HEAD") return;
    figures_.Forget();
  });
  set_error_handler([](const Request& request, Response& response) {
    if (response.body.empty()) Refuse(response, ErrorFor(request, response.status), response.status);
  });
  set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
    Refuse(response, {EIO, "internal error", "see the daemon's log"});
  });
}

}  // namespace tessera::face
