#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "client/json.h"

namespace tessera::client {

// Client of the daemon's HTTP API on <run-dir>/api.sock, with one connection for each call. Calls block; they fail when
// the daemon sends nothing for kAnswerSeconds. Any thread.
//
// It uses no HTTP library: the errno of connect(2) decides what the caller does next, a burst of clients must wait in
// the socket's queue instead of failing, and libraries with TLS cost every `tessera run` milliseconds. It speaks
// HTTP/1.0, so an answer ends where the daemon closes.
class ApiClient {
 public:
  static constexpr int kAnswerSeconds = 30;
  static constexpr int kStopSeconds = 1;

  // Get, Post, Patch and Delete end with ECANCELED within kStopSeconds after `stop_fd` becomes readable (-1: never).
  explicit ApiClient(const std::string& run_dir, int stop_fd = -1)
      : socket_path_(run_dir + "/api.sock"), stop_fd_(stop_fd) {}

  // The answer's JSON (null for an empty one). Errors: ECONNREFUSED if no daemon answers; if the daemon refuses, its
  // own message and the errno value of its HTTP status (ENOENT, EBUSY, EPERM …).
  Result<Json> Get(const std::string& path) const;
  // Passes the answer to `take` piece by piece until the daemon closes the connection. `type` goes into Accept.
  Result<void> Follow(const std::string& path, const std::string& type,
                      const std::function<void(std::string_view)>& take) const;
  Result<Json> Post(const std::string& path, const Json& body) const;
  Result<Json> Patch(const std::string& path, const Json& body) const;
  Result<Json> Delete(const std::string& path) const;

  // A connection to the daemon, for who speaks HTTP on it. Errors as of the others.
  Result<UniqueFd> Connect() const;

  const std::string& socket_path() const { return socket_path_; }

 private:
  Result<Json> Call(const std::string& method, const std::string& path, const std::string& body) const;

  std::string socket_path_;
  int stop_fd_;
};

// The JSON of an HTTP answer, or the error that it reports. Public for tests.
Result<Json> ReadAnswer(const std::string& answer);

}  // namespace tessera::client
