#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "client/json.h"

namespace httplib {
class SSLClient;
}

namespace tessera::kubernetes {

using client::Json;

// Where the API server is, and who we are there.
struct ApiServerAccess {
  std::string host;
  int port = 443;
  std::string ca_file;     // of the certificate authority
  std::string token_file;  // read for each request: its content is replaced before it expires
};

// That of a pod, by its service account. ENOENT: this is no pod.
Result<ApiServerAccess> AccessOfPod();
// "https://HOST:PORT". EINVAL if it is none.
Result<ApiServerAccess> AccessOf(const std::string& url, std::string ca_file, std::string token_file);

// Client of the Kubernetes API server, by HTTPS with the service account's token. One connection for each call; calls
// block, and fail when the server is silent for kAnswerSeconds. Any thread.
//
// Errors have the server's own message, and for its status an errno value: ENOENT (404), EEXIST (409 AlreadyExists),
// ESTALE (409 Conflict, 410), EACCES (401, 403), EINVAL (400, 422), EAGAIN (429, 5xx). ECONNREFUSED: no server answers.
class ApiServer {
 public:
  static constexpr int kAnswerSeconds = 10;
  static constexpr int kWatchSeconds = 240;

  explicit ApiServer(ApiServerAccess access);
  ~ApiServer();

  Result<Json> Get(const std::string& path) const;
  Result<Json> Post(const std::string& path, const Json& body) const;
  Result<Json> Put(const std::string& path, const Json& body) const;
  // As a JSON merge patch (RFC 7396).
  Result<Json> Patch(const std::string& path, const Json& body) const;
  // Server-side apply: `manager` wants these fields so, whoever else wants them otherwise.
  Result<Json> Apply(const std::string& path, const std::string& manager, const Json& body) const;
  Result<void> Delete(const std::string& path) const;

  // Watches a list from its resourceVersion on, `path` with a query: `take` gets each event's type and object. Returns
  // when the server ends the watch, kWatchSeconds at the latest, or after Stop. ESTALE: read the list again.
  Result<void> Watch(const std::string& path, const std::string& resource_version,
                     const std::function<void(const std::string& type, const Json& object)>& take);
  // Ends the watch, and each later one at once.
  void Stop();

 private:
  Result<std::unique_ptr<httplib::SSLClient>> Connect(int answer_seconds) const;
  Result<Json> Call(const std::string& method, const std::string& path, const Json* body,
                    const char* form = "application/json") const;

  const ApiServerAccess access_;
  std::mutex mutex_;
  httplib::SSLClient* watching_ = nullptr;
  bool stopped_ = false;
};

}  // namespace tessera::kubernetes
