// The API by TCP: nothing without the token, everything with it, and no way to hold up api.sock.
#include "face/http/tcp.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include "base/testing/temporary_folder.h"
#include "face/http/peer_stream.h"
#include "face/http/server/http_server.h"
#include "server/testing/test_daemon.h"

namespace tessera::face {
namespace {

using testing::HasSubstr;

constexpr const char* kToken = "0123456789abcdef";

int PortOf(const UniqueFd& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  EXPECT_EQ(getsockname(listener.Get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

class TcpTest : public testing::Test {
 protected:
  TcpTest() {
    auto http = HttpServer::Start(daemon_.Loop(), daemon_.TakeApiListener(), daemon_.Api());
    EXPECT_TRUE(http);
    http_ = std::move(*http);
    auto listener = ListenTcp("127.0.0.1:0");
    EXPECT_TRUE(listener) << listener.error().Text();
    port_ = PortOf(*listener);
    EXPECT_TRUE(http_->AddTcp(daemon_.Loop(), std::move(*listener), kToken));
  }
  ~TcpTest() override {
    daemon_.EndLoop();
    http_.reset();
  }

  int Status(const std::string& path, const httplib::Headers& headers = {}) const {
    httplib::Client client("127.0.0.1", port_);
    const auto answer = client.Get(path, headers);
    return answer ? answer->status : 0;
  }
  static httplib::Headers Bearer(const std::string& token) { return {{"Authorization", "Bearer " + token}}; }

  server::TestDaemon daemon_;
  std::unique_ptr<HttpServer> http_;
  int port_ = 0;
};

TEST_F(TcpTest, NeedsTheToken) {
  EXPECT_EQ(Status("/v1/gpus", Bearer(kToken)), 200);
  EXPECT_EQ(Status("/metrics", Bearer(kToken)), 200);
  EXPECT_EQ(Status("/healthz"), 200) << "whether it is alive is no secret";
  for (const char* path : {"/v1/gpus", "/v1/vgpus", "/v1/processes", "/metrics", "/nothing", "/healthz/x"})
    EXPECT_EQ(Status(path), 401) << path;
  EXPECT_EQ(Status("/v1/gpus", Bearer("")), 401);
  EXPECT_EQ(Status("/v1/gpus", Bearer("0123456789abcdeF")), 401);
  EXPECT_EQ(Status("/v1/gpus", Bearer("0123456789abcdef0")), 401);
  EXPECT_EQ(Status("/v1/gpus", {{"Authorization", "Basic 0123456789abcdef"}}), 401);
}

TEST_F(TcpTest, WhoHasTheTokenMayChangeThings) {
  httplib::Client client("127.0.0.1", port_);
  const std::string body = R"({"name":"a","gpu":0})";
  const auto refused = client.Post("/v1/vgpus", body, "application/json");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(refused->get_header_value("WWW-Authenticate"), "Bearer");
  EXPECT_THAT(refused->body, HasSubstr("Authorization: Bearer TOKEN"));
  EXPECT_FALSE(daemon_.Api().VGpuNamed("a")) << "nothing was made";
  const auto made = client.Post("/v1/vgpus", Bearer(kToken), body, "application/json");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->status, 201);
  EXPECT_EQ(daemon_.Report("a").uid, geteuid());
}

TEST_F(TcpTest, SilentClientsHoldUpNobody) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 80; ++i) {  // more than wait at most
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port_))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(fd.Get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    silent.push_back(std::move(fd));
  }
  httplib::Client client(daemon_.RunDir() + "/api.sock", 80);
  client.set_address_family(AF_UNIX);
  const auto answer = client.Get("/v1/gpus");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(Status("/v1/gpus", Bearer(kToken)), 200) << "nor those who come by TCP as well";
}

TEST(Tcp, AddressesAreNumbers) {
  for (const char* address :
       {"", "9477", "localhost:9477", "127.0.0.1:", "127.0.0.1:http", "::1:x", "127.0.0.1:99999"}) {
    const auto listener = ListenTcp(address);
    ASSERT_FALSE(listener) << address;
    EXPECT_EQ(listener.error().code, EINVAL) << address;
  }
  const auto first = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(first);
  const auto second = ListenTcp("127.0.0.1:" + std::to_string(PortOf(*first)));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EADDRINUSE);
}

TEST(Tcp, ATokenIsASecretInAFile) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text, mode_t mode) {
    const std::string path = folder.File("token", text);
    chmod(path.c_str(), mode);
    auto token = ReadToken(path);
    unlink(path.c_str());  // the next one may have another mode
    return token;
  };
  EXPECT_EQ(read("0123456789abcdef\n", 0600).value_or(""), kToken);
  EXPECT_EQ(read("0123456789abcdef", 0400).value_or(""), kToken);
  EXPECT_EQ(read("0123456789abcdef\n", 0640).error().code, EPERM);
  EXPECT_THAT(read("0123456789abcdef\n", 0644).error().hint, HasSubstr("chmod 600"));
  for (const std::string& text : {std::string("short"), std::string(257, 'a'), std::string("0123456789 abcdef"),
                                  std::string("0123456789abcdef\n\n"), std::string()})
    EXPECT_EQ(read(text, 0600).error().code, EINVAL) << text;
  EXPECT_EQ(ReadToken("/nonexistent/token").error().code, ENOENT);
  EXPECT_EQ(ReadToken("/tmp").error().code, EINVAL);
}

}  // namespace
}  // namespace tessera::face
