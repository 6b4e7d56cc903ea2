#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "client/json.h"

namespace tessera::client {

// Speaks HTTP with the daemon over <run-dir>/api.sock; one connection for each call. Blocks, for at most kAnswerSeconds
// without a byte from the daemon.
//
// Own code instead of a library because the errno of connect(2) decides what happens next, because a burst of clients
// must wait in the socket's queue instead of failing, and because libraries that bring TLS cost every
// `tessera run` milliseconds. HTTP/1.0: the answer is what comes until the daemon closes.
class ApiClient {
 public:
  static constexpr int kAnswerSeconds = 30;
  static constexpr int kStopSeconds = 1;

  // With a `stop_fd`, Get, Post, Patch and Delete end with ECANCELED within kStopSeconds once that can be read.
  explicit ApiClient(const std::string& run_dir, int stop_fd = -1)
      : socket_path_(run_dir + "/api.sock"), stop_fd_(stop_fd) {}

  // The answer's JSON (null for an empty one). Codes of errors: ECONNREFUSED when no daemon answers there; what the
  // daemon's HTTP status says (ENOENT, EBUSY, EPERM …) with its own words when it refuses.
  Result<Json> Get(const std::string& path) const;
  // Gives what comes, piece by piece, to `take`, until the daemon closes the connection. `type` is what is accepted.
  Result<void> Follow(const std::string& path, const std::string& type,
                      const std::function<void(std::string_view)>& take) const;
  Result<Json> Post(const std::string& path, const Json& body) const;
  Result<Json> Patch(const std::string& path, const Json& body) const;
  Result<Json> Delete(const std::string& path) const;

  const std::string& socket_path() const { return socket_path_; }

 private:
  Result<Json> Call(const std::string& method, const std::string& path, const std::string& body) const;

  std::string socket_path_;
  int stop_fd_;
};

// The status and body of an HTTP answer, and the JSON or error it means. Apart for tests.
Result<Json> ReadAnswer(const std::string& answer);

}  // namespace tessera::client
