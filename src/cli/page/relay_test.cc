#include "cli/page/relay.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "cli/page/relay_request.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kToken = "0123456789abcdef";
const std::string kHost = "Host: 127.0.0.1:1\r\n";
const std::string kShown = "Authorization: Bearer " + kToken + "\r\n";

int Refused(const std::string& head) {
  const auto forwarded = ForwardedHead(head, kToken);
  return forwarded ? 0 : forwarded.error().code;
}

TEST(ForwardedHead, KeepsAllButTheToken) {
  const auto head = ForwardedHead("GET /v1/vgpus HTTP/1.1\r\n" + kHost + kShown + "Accept: */*\r\n\r\n", kToken);
  ASSERT_TRUE(head);
  EXPECT_EQ(*head, "GET /v1/vgpus HTTP/1.1\r\n" + kHost + "Accept: */*\r\n\r\n");
}

TEST(ForwardedHead, OnlyThePagesOwnFilesNeedNoToken) {
  for (const char* path : {"/", "/healthz", "/page/main.js"})
    EXPECT_EQ(Refused("GET " + std::string(path) + " HTTP/1.1\r\n" + kHost + "\r\n"), 0) << path;
  for (const char* path : {"/v1/vgpus", "/metrics", "/page/../v1/vgpus", "/page/%2e%2e/v1/vgpus", "/page/x?y",
                           "//v1/vgpus", "/healthz/x", "/page/A"})
    EXPECT_EQ(Refused("GET " + std::string(path) + " HTTP/1.1\r\n" + kHost + "\r\n"), EACCES) << path;
  EXPECT_EQ(Refused("POST / HTTP/1.1\r\n" + kHost + "\r\n"), EACCES);
}

TEST(ForwardedHead, RefusesWrongTokens) {
  const auto with = [](const std::string& header) {
    return Refused("GET /v1/gpus HTTP/1.1\r\n" + header + "\r\n\r\n");
  };
  EXPECT_EQ(with("aUTHORIZATION:Bearer " + kToken), 0);
  for (const std::string& header :
       {std::string("Authorization: Bearer"), "Authorization: Bearer " + kToken + "x", "Authorization: " + kToken,
        "Authorization: bearer " + kToken, "X-Authorization: Bearer " + kToken, std::string("Authorization:")})
    EXPECT_EQ(with(header), EACCES) << header;
}

// A head that two programs could read in two ways is not passed on.
TEST(ForwardedHead, RefusesWhatIsNoRequest) {
  for (const std::string head :
       {"\r\n", "GET\r\n\r\n", "GET / HTTP/1.1\n\r\n", "GET / HTTP/2\r\n\r\n", "GET / x HTTP/1.1\r\n\r\n",
        " GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\nGET /v1/vgpus HTTP/1.1\r\n\r\n", "GET http://x/ HTTP/1.1\r\n\r\n"}) {
    EXPECT_EQ(Refused(head), EINVAL) << head;
  }
}

TEST(RefusalOf, IsAWholeAnswer) {
  EXPECT_THAT(RefusalOf({EACCES, "no \"token\"", ""}), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(RefusalOf({EACCES, "no \"token\"", ""}), HasSubstr(R"("detail":"no \"token\"")"));
  EXPECT_THAT(RefusalOf({ECONNREFUSED, "", ""}), StartsWith("HTTP/1.1 503 "));
}

// A relay, and in the daemon's place the other end of a socket for each connection.
class RelayTest : public testing::Test {
 protected:
  RelayTest() {
    auto relay = Relay::Listen(0, kToken, [this]() -> Result<UniqueFd> {
      if (away_) return Fail(ECONNREFUSED, "no daemon answers");
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      daemon_.set_value(UniqueFd(ends[0]));
      return UniqueFd(ends[1]);
    });
    EXPECT_TRUE(relay);
    relay_ = std::move(*relay);
    thread_ = std::thread([this] { EXPECT_TRUE(relay_->Serve(stop_.Get())); });
  }
  ~RelayTest() override {
    eventfd_write(stop_.Get(), 1);
    thread_.join();
  }

  UniqueFd Browser() const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address{.sin_family = AF_INET,
                              .sin_port = htons(relay_->Port()),
                              .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                              .sin_zero = {}};
    EXPECT_EQ(connect(fd.Get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void Send(const UniqueFd& fd, const std::string& text) {
    EXPECT_EQ(send(fd.Get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  static std::string All(const UniqueFd& fd) {
    std::string all;
    char piece[4096];
    for (ssize_t got; (got = recv(fd.Get(), piece, sizeof piece, 0)) > 0;)
      all.append(piece, static_cast<std::size_t>(got));
    return all;
  }

  std::atomic<bool> away_ = false;
  std::promise<UniqueFd> daemon_;  // the daemon's end, once a request is passed on
  UniqueFd stop_{eventfd(0, EFD_CLOEXEC)};
  std::unique_ptr<Relay> relay_;
  std::thread thread_;
};

TEST_F(RelayTest, PassesARequestAndItsAnswer) {
  const UniqueFd silent = Browser();
  const UniqueFd browser = Browser();
  Send(browser, "POST /v1/x HTTP/1.1\r\n" + kShown + "Content-Length: 4\r\n");
  Send(browser, "\r\nbody");
  UniqueFd daemon = daemon_.get_future().get();
  std::string got;
  while (!got.ends_with("body")) {
    char piece[4096];
    const ssize_t length = recv(daemon.Get(), piece, sizeof piece, 0);
    ASSERT_GT(length, 0) << got;
    got.append(piece, static_cast<std::size_t>(length));
  }
  EXPECT_EQ(got, "POST /v1/x HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
  const std::string answer(300'000, 'x');  // more than its buffers hold
  std::thread writer([&] {
    Send(daemon, answer);
    daemon.Reset();
  });
  EXPECT_EQ(All(browser), answer);
  writer.join();
}

TEST_F(RelayTest, RefusesWithoutTheTokenAndAsksNobody) {
  const UniqueFd browser = Browser();
  Send(browser, "GET /v1/gpus HTTP/1.1\r\n\r\n");
  EXPECT_THAT(All(browser), StartsWith("HTTP/1.1 401 "));
  EXPECT_EQ(daemon_.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

TEST_F(RelayTest, SaysThatTheDaemonIsAway) {
  away_ = true;
  const UniqueFd browser = Browser();
  Send(browser, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(All(browser), StartsWith("HTTP/1.1 503 "));
}

}  // namespace
}  // namespace tessera::cli
