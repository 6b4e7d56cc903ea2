#include "kubernetes/api_server/api_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/objects/no_answer.h"

namespace tessera::kubernetes {

using client::Field;
using client::TextField;

namespace {

constexpr const char* kServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr int kConnectSeconds = 5;

int ErrnoOf(int status, const std::string& reason) {
  switch (status) {
    case 400:
    case 422:
      return EINVAL;
    case 401:
    case 403:
      return EACCES;
    case 404:
      return ENOENT;
    case 409:
      return reason == "AlreadyExists" ? EEXIST : ESTALE;
    case 410:
      return ESTALE;
    default:
      return status == 429 || status >= 500 ? EAGAIN : EPROTO;
  }
}

// Of a Status object, where the server says one.
std::unexpected<Error> ServerError(int status, const Json& body) {
  const std::string message = TextField(body, "message", fmt::format("HTTP status {}", status));
  return Fail(ErrnoOf(status, TextField(body, "reason")), "the API server says: " + message,
              status == 401 || status == 403 ? "see the ServiceAccount's token and its ClusterRole" : "");
}

std::string PathAndQuery(const std::string& path, const std::string& query) {
  return path + (path.find('?') == std::string::npos ? "?" : "&") + query;
}

}  // namespace

Result<ApiServerAccess> AccessOfPod() {
  const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (!host || !port)
    return Fail(ENOENT, "this is no pod: KUBERNETES_SERVICE_HOST is not set", "name the API server with --api-server");
  return AccessOf(fmt::format("https://{}:{}", host, port), std::string(kServiceAccount) + "/ca.crt",
                  std::string(kServiceAccount) + "/token");
}

Result<ApiServerAccess> AccessOf(const std::string& url, std::string ca_file, std::string token_file) {
  constexpr std::string_view kScheme = "https://";
  ApiServerAccess access{.host = {}, .ca_file = std::move(ca_file), .token_file = std::move(token_file)};
  const auto wrong = Fail(EINVAL, fmt::format("\"{}\" is no URL of an API server", url), "use https://HOST:PORT");
  if (!url.starts_with(kScheme)) return wrong;
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && rest.find(']', colon) == std::string_view::npos) {
    const auto [stop, error] = std::from_chars(rest.data() + colon + 1, rest.data() + rest.size(), access.port);
    if (error != std::errc() || stop != rest.data() + rest.size() || access.port < 1 || access.port > 65535)
      return wrong;
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty() || rest.find('/') != std::string_view::npos) return wrong;
  access.host = rest;
  return access;
}

ApiServer::ApiServer(ApiServerAccess access) : access_(std::move(access)) {}
ApiServer::~ApiServer() = default;

Result<std::unique_ptr<httplib::SSLClient>> ApiServer::Connect(int answer_seconds) const {
  std::ifstream file(access_.token_file);
  std::string token{std::istreambuf_iterator<char>(file), {}};
  if (!file && token.empty()) return FailErrno("cannot read " + access_.token_file);
  while (!token.empty() && (token.back() == '\n' || token.back() == ' ')) token.pop_back();
  auto client = std::make_unique<httplib::SSLClient>(access_.host, access_.port);
  client->set_ca_cert_path(access_.ca_file.c_str());
  client->enable_server_certificate_verification(true);
  client->set_connection_timeout(kConnectSeconds);
  client->set_read_timeout(answer_seconds);
  client->set_write_timeout(kAnswerSeconds);
  client->set_bearer_token_auth(token.c_str());
  return client;
}

Result<Json> ApiServer::Call(const std::string& method, const std::string& path, const Json* body,
                             const char* form) const {
  auto client = Connect(kAnswerSeconds);
  if (!client) return std::unexpected(client.error());
  httplib::Request request;
  request.method = method;
  request.path = path;
  request.set_header("Accept", "application/json");
  if (body) {
    // Texts of others, which may have been cut within a character.
    request.body = body->dump(-1, ' ', false, Json::error_handler_t::replace);
    request.set_header("Content-Type", form);
  }
  const httplib::Result answer = (*client)->send(request);
  if (!answer)
    return Fail(answer.error() == httplib::Error::Read ? ETIMEDOUT : ECONNREFUSED,
                fmt::format("the API server at {}:{} does not answer: {}", access_.host, access_.port,
                            httplib::to_string(answer.error())));
  Json json = Json::parse(answer->body, nullptr, false);
  if (json.is_discarded()) json = Json();
  if (answer->status < 200 || answer->status >= 300) return ServerError(answer->status, json);
  return json;
}

Result<Json> ApiServer::Get(const std::string& path) const { return Call("GET", path, nullptr); }
Result<Json> ApiServer::Post(const std::string& path, const Json& body) const { return Call("POST", path, &body); }
Result<Json> ApiServer::Put(const std::string& path, const Json& body) const { return Call("PUT", path, &body); }
Result<Json> ApiServer::Patch(const std::string& path, const Json& body) const {
  return Call("PATCH", path, &body, "application/merge-patch+json");
}
Result<Json> ApiServer::Apply(const std::string& path, const std::string& manager, const Json& body) const {
  return Call("PATCH", fmt::format("{}?fieldManager={}&force=true", path, manager), &body,
              "application/apply-patch+yaml");
}
Result<void> ApiServer::Delete(const std::string& path) const { return NoAnswer(Call("DELETE", path, nullptr)); }

Result<void> ApiServer::Watch(const std::string& path, const std::string& resource_version,
                              const std::function<void(const std::string& type, const Json& object)>& take) {
  auto client = Connect(kWatchSeconds + kAnswerSeconds);
  if (!client) return std::unexpected(client.error());
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return {};
    watching_ = client->get();
  }
  std::string pending;
  Result<void> result;
  const auto line = [&](const std::string& text) {
    const Json event = Json::parse(text, nullptr, false);
    const std::string type = TextField(event, "type");
    const Json& object = Field(event, "object");
    if (type == "ERROR") {
      result = ServerError(
          object.is_object() && Field(object, "code").is_number_integer() ? Field(object, "code").get<int>() : 500,
          object);
      return false;
    }
    if (!type.empty()) take(type, object);
    return true;
  };
  int status = 0;
  const auto answer = (*client)->Get(
      PathAndQuery(path, fmt::format("watch=1&resourceVersion={}&timeoutSeconds={}", resource_version, kWatchSeconds)),
      [&](const httplib::Response& response) {
        status = response.status;
        return true;
      },
      [&](const char* data, std::size_t bytes) {
        pending.append(data, bytes);
        for (std::size_t end; status == 200 && (end = pending.find('\n')) != std::string::npos;) {
          const std::string text = pending.substr(0, end);
          pending.erase(0, end + 1);
          if (!text.empty() && !line(text)) return false;
        }
        return true;
      });
  {
    const std::lock_guard lock(mutex_);
    watching_ = nullptr;
    if (stopped_) return {};
  }
  if (!result) return result;
  if (status != 0 && status != 200) return ServerError(status, Json::parse(pending, nullptr, false));
  if (!answer && status == 0)
    return Fail(ECONNREFUSED, "the API server does not answer: " + httplib::to_string(answer.error()));
  return {};
}

void ApiServer::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (watching_) watching_->stop();
}

}  // namespace tessera::kubernetes
