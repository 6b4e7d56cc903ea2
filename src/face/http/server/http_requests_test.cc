// Requests that are wrong, too large, too slow or of a rare form.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "face/http/event_streams.h"
#include "face/testing/http_server_test.h"

namespace tessera::face {
namespace {

using HttpRequestsTest = HttpServerTest;
using nlohmann::json;
using testing::HasSubstr;

TEST_F(HttpRequestsTest, ProblemsSayWhatToDo) {
  const auto answer = Post("/v1/vgpus", R"({"name":"a","gpu":0,"memory_request":"20G"})");
  EXPECT_EQ(answer.status, 409);
  EXPECT_EQ(answer.type, "application/problem+json");
  EXPECT_EQ(answer.body,
            json({{"type", "about:blank"},
                  {"title", "Conflict"},
                  {"status", 409},
                  {"detail", "cannot promise 20 GiB: GPU 0 has 10 GiB left of 10 GiB (0 vGPUs hold promises)"},
                  {"hint", "request at most 10 GiB, or lower another vGPU's memory.request"},
                  {"code", "ENOSPC"}}));
}

TEST_F(HttpRequestsTest, WrongRequestsAreRefusedByField) {
  const auto refused = [&](const std::string& body) {
    const auto answer = Post("/v1/vgpus", body);
    EXPECT_EQ(answer.status, 400) << body;
    return answer.body.value("detail", "");
  };
  EXPECT_THAT(refused("{"), HasSubstr("JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("JSON"));
  EXPECT_THAT(refused(R"({"memory":"1G"})"), HasSubstr("unknown field \"memory\""));
  EXPECT_THAT(refused(R"({"memory_limit":[]})"), HasSubstr("memory_limit"));
  EXPECT_THAT(refused(R"({"memory_limit":-1})"), HasSubstr("memory_limit"));
  EXPECT_THAT(refused(R"({"ephemeral":1})"), HasSubstr("ephemeral"));
  EXPECT_THAT(refused(R"({"ephemeral":true,"owner_pid":0})"), HasSubstr("owner_pid"));
  EXPECT_THAT(refused(R"({"name":"a/b"})"), HasSubstr("a/b"));
  EXPECT_THAT(refused(R"({"compute_weight":0})"), HasSubstr("weight"));
  EXPECT_THAT(refused(R"({"goal":"fast"})"), HasSubstr("goal"));
  EXPECT_THAT(refused(R"({"goal":80})"), HasSubstr("goal must be a string"));
}

// Copying such a value takes a stack as deep, which threads need not have.
TEST_F(HttpRequestsTest, DeeplyNestedValuesAreRefused) {
  constexpr std::size_t kDepth = 12'000;
  std::string nested;
  for (std::size_t i = 0; i < kDepth; ++i) nested += R"({"":)";
  nested += "1" + std::string(kDepth, '}');
  for (const char* field : {"name", "gpu", "memory_max", "compute_weight", "goal", "ephemeral", "owner_pid", "none"})
    EXPECT_EQ(Post("/v1/vgpus", fmt::format(R"({{"{}":{}}})", field, nested)).status, 400) << field;
}

TEST_F(HttpRequestsTest, WrongPathsAndMethods) {
  EXPECT_EQ(Get("/v2/gpus").status, 404);
  EXPECT_EQ(Get("/v2/gpus").body.at("code"), "ENOENT");
  EXPECT_EQ(Get("/v1/vgpus/none").status, 404);
  EXPECT_EQ(Delete("/v1/gpus").status, 405);
  EXPECT_EQ(Patch("/v1/processes", "{}").status, 405);
  EXPECT_EQ(Post("/v1/vgpus/a", "{}").status, 405);
  EXPECT_EQ(Read(client_.Put("/v1/vgpus/a", "{}", "application/json")).status, 405);
}

TEST_F(HttpRequestsTest, BodiesAreBounded) {
  const auto answer = Post("/v1/vgpus", std::string(70'000, ' '));
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.body.at("code"), "EMSGSIZE");
}

TEST_F(HttpRequestsTest, ARequestWithoutABodyIsAnsweredAtOnce) {
  const UniqueFd fd = Connect();
  const std::string_view request = "POST /v1/vgpus HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(send(fd.Get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  char reply[1024] = {};
  ASSERT_GT(recv(fd.Get(), reply, sizeof reply - 1, 0), 0);
  EXPECT_THAT(reply, HasSubstr("400"));
}

TEST_F(HttpRequestsTest, EndlessHeadersEndTheConnection) {
  const UniqueFd fd = Connect();
  std::string chunk = "GET /healthz HTTP/1.1\r\n";
  ssize_t sent;
  while ((sent = send(fd.Get(), chunk.data(), chunk.size(), MSG_NOSIGNAL)) > 0)
    chunk = "X: " + std::string(4000, 'x') + "\r\n";
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << strerror(errno);
  EXPECT_EQ(Get("/healthz").status, 200);
}

// Served by a few threads, each of which would wait ten seconds for a silent one.
TEST_F(HttpRequestsTest, SilentClientsHoldUpNobody) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 64; ++i) silent.push_back(Connect());
  client_.set_read_timeout(30);
  EXPECT_EQ(Get("/healthz").status, 200);
}

TEST_F(HttpRequestsTest, PartsAreNotServed) {
  const auto whole = client_.Get("/healthz");
  for (const char* range : {"bytes=0-5", "bytes=0-0,1-1,0-,0-,0-", "bytes=5000-", "bytes=-1"}) {
    const auto answer = client_.Get("/healthz", {{"Range", range}});
    ASSERT_TRUE(whole && answer) << range;
    EXPECT_EQ(answer->status, 200) << range;
    EXPECT_EQ(answer->body, whole->body) << range;
  }
}

TEST_F(HttpRequestsTest, HeadIsGetWithoutABody) {
  for (const char* path : {"/healthz", "/metrics", "/v1/gpus"}) {
    const auto answer = client_.Head(path);
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->status, 200) << path;
    EXPECT_EQ(answer->body, "") << path;
  }
  EXPECT_EQ(client_.Head("/nothing")->status, 404);
  const auto events = client_.Head("/v1/events", {{"Accept", "text/event-stream"}});
  ASSERT_TRUE(events) << "the head alone, not a stream";
  EXPECT_EQ(events->body, "");
}

// All ask at once: the places must be counted before the first answer is written.
TEST_F(HttpRequestsTest, FollowersBeyondTheMostAreRefusedAndNotClosedLater) {
  constexpr std::size_t kMore = 16;
  std::vector<UniqueFd> followers;
  for (std::size_t i = 0; i < EventStreams::kMost + kMore; ++i) followers.push_back(Connect());
  const std::string_view request = "GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n";
  for (const UniqueFd& fd : followers)
    ASSERT_EQ(send(fd.Get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::size_t followed = 0, refused = 0;
  for (const UniqueFd& fd : followers) {
    std::string answer;
    char piece[4096];
    while (answer.find("retry: ") == std::string::npos) {
      const ssize_t got = recv(fd.Get(), piece, sizeof piece, 0);
      if (got <= 0) break;
      answer.append(piece, static_cast<std::size_t>(got));
    }
    if (answer.starts_with("HTTP/1.1 200 ")) {
      ++followed;
      EXPECT_THAT(answer, HasSubstr("retry: ")) << "closed after its head";
    } else {
      ++refused;
      EXPECT_THAT(answer, testing::StartsWith("HTTP/1.1 503 "));
      EXPECT_THAT(answer, HasSubstr("too many clients follow the events"));
    }
  }
  EXPECT_EQ(followed, EventStreams::kMost);
  EXPECT_EQ(refused, kMore);
}

TEST_F(HttpRequestsTest, SlowReadersHoldUpNoProgram) {
  ASSERT_EQ(Post("/v1/vgpus", R"({"name":"a","gpu":0})").status, 201);
  std::vector<UniqueFd> slow;
  for (int n = 0; n < 20; ++n) slow.push_back(Connect());  // all of the server's threads wait for a request
  EXPECT_TRUE(daemon_.Connect("a").TakeToken());
}

}  // namespace
}  // namespace tessera::face
