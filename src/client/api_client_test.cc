#include "client/api_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/testing/temporary_folder.h"
#include "base/unique_fd.h"

namespace tessera::client {
namespace {

// A server that answers one request on <folder>/api.sock with given bytes and keeps what it was asked.
class OneAnswer {
 public:
  explicit OneAnswer(const std::string& answer) {
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    (folder_.path() + "/api.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(bind(listener_.Get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.Get(), 1), 0);
    server_ = std::thread([this, answer] { Serve(answer); });
  }
  ~OneAnswer() {
    if (server_.joinable()) server_.join();
  }

  const std::string& folder() const { return folder_.path(); }
  // The request, once it has been answered.
  const std::string& Request() {
    server_.join();
    return request_;
  }

 private:
  void Serve(const std::string& answer) {
    const UniqueFd peer(accept(listener_.Get(), nullptr, nullptr));
    char piece[4096];
    const ssize_t got = recv(peer.Get(), piece, sizeof piece, 0);
    request_.assign(piece, got > 0 ? got : 0);
    // One byte at a time: an answer may come in any pieces.
    for (const char c : answer) send(peer.Get(), &c, 1, MSG_NOSIGNAL);
  }

  const TemporaryFolder folder_;
  UniqueFd listener_;
  std::thread server_;
  std::string request_;
};

TEST(ApiClient, ReadsAnAnswer) {
  OneAnswer server("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"gpus\":[]}");
  const auto answer = ApiClient(server.folder()).Get("/v1/gpus");
  ASSERT_TRUE(answer) << answer.error().Text();
  EXPECT_EQ(*answer, (Json{{"gpus", Json::array()}}));
  EXPECT_TRUE(server.Request().starts_with("GET /v1/gpus HTTP/1.0\r\n"));
}

TEST(ApiClient, SendsABodyWithItsLength) {
  OneAnswer server("HTTP/1.1 201 Created\r\n\r\n{\"name\":\"a\"}");
  ASSERT_TRUE(ApiClient(server.folder()).Post("/v1/vgpus", {{"name", "a"}}));
  const std::string request = server.Request();
  EXPECT_NE(request.find("Content-Length: 12\r\n"), std::string::npos) << request;
  EXPECT_TRUE(request.ends_with("\r\n\r\n{\"name\":\"a\"}")) << request;
}

TEST(ApiClient, NobodyThereIsRefusedConnection) {
  const auto answer = ApiClient("/tmp/no-such-folder-of-tessera").Get("/healthz");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ECONNREFUSED);
  EXPECT_NE(answer.error().message.find("/tmp/no-such-folder-of-tessera/api.sock"), std::string::npos);
  EXPECT_FALSE(answer.error().hint.empty());
}

TEST(ApiClient, ADaemonThatLeavesIsRefusedConnection) {
  OneAnswer server("");
  const auto answer = ApiClient(server.folder()).Get("/healthz");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ECONNREFUSED);
}

TEST(ApiClient, RefusesPathsThatNoSocketCanHave) {
  const auto answer = ApiClient("/tmp/" + std::string(120, 'x')).Get("/healthz");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ENAMETOOLONG);
}

TEST(ReadAnswer, TellsWhatTheDaemonSays) {
  const auto answer = ReadAnswer(
      "HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\n\r\n"
      R"({"title":"Conflict","status":409,"detail":"20 GiB asked, 3 GiB left","hint":"ask for less","code":"ENOSPC"})");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().Text(), "20 GiB asked, 3 GiB left; ask for less");
  EXPECT_EQ(answer.error().code, EBUSY);
}

TEST(ReadAnswer, NamesTheStatusWhereThereAreNoWords) {
  const auto answer = ReadAnswer("HTTP/1.1 500 Internal Server Error\r\n\r\n<html>");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, "the daemon answered with HTTP status 500");
  EXPECT_EQ(answer.error().code, EIO);
}

TEST(ReadAnswer, NoContentIsNull) { EXPECT_TRUE(ReadAnswer("HTTP/1.1 204 No Content\r\n\r\n").value().is_null()); }

TEST(ReadAnswer, RefusesWhatIsNoAnswer) {
  for (const std::string text : {"", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 abc\r\n\r\n",
                                 "HTTP/1.1 200 OK\r\n\r\n{\"cut\":", "HTTP/1."}) {
    const auto answer = ReadAnswer(text);
    ASSERT_FALSE(answer) << text;
    EXPECT_EQ(answer.error().code, EPROTO) << text;
  }
}

}  // namespace
}  // namespace tessera::client
