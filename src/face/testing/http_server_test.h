// Shared by the tests of the HTTP server.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "face/http/peer_stream.h"
#include "face/http/server/http_server.h"
#include "server/testing/test_daemon.h"

namespace tessera::face {

// A daemon with two GPUs and without swap, its API's server and a client of that.
class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    auto http = HttpServer::Start(daemon_.Loop(), daemon_.TakeApiListener(), daemon_.Api());
    EXPECT_TRUE(http);
    http_ = std::move(*http);
    client_.set_address_family(AF_UNIX);
  }
  ~HttpServerTest() override {
    daemon_.EndLoop();
    http_.reset();
  }

  struct Answer {
    int status = 0;
    nlohmann::json body;
    std::string type;
  };
  static Answer Read(const httplib::Result& result) {
    if (!result) {
      ADD_FAILURE() << "no answer: " << httplib::to_string(result.error());
      return {};
    }
    return {result->status, nlohmann::json::parse(result->body, nullptr, false),
            result->get_header_value("Content-Type")};
  }
  Answer Get(const std::string& path) { return Read(client_.Get(path)); }
  Answer Post(const std::string& path, const std::string& body) {
    return Read(client_.Post(path, body, "application/json"));
  }
  Answer Patch(const std::string& path, const std::string& body) {
    return Read(client_.Patch(path, body, "application/json"));
  }
  Answer Delete(const std::string& path) { return Read(client_.Delete(path)); }

  // Speaks to the socket without an HTTP library.
  UniqueFd Connect() const {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    (daemon_.RunDir() + "/api.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.Get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  static server::TestDaemon::Setup SetupWithSwap(const std::string& size) {
    server::TestDaemon::Setup setup{.gpus = 2};
    setup.config.swap_size = size;
    return setup;
  }

  server::TestDaemon daemon_{SetupWithSwap("0")};
  std::unique_ptr<HttpServer> http_;
  httplib::Client client_{daemon_.RunDir() + "/api.sock", 80};
};

}  // namespace tessera::face
