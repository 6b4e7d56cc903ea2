#include "face/http/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <nlohmann/json.hpp>

#include "base/size.h"
#include "face/http/event_streams.h"
#include "face/http/peer_stream.h"
#include "face/text/json.h"
#include "server/loop/listeners.h"
#include "server/testing/test_daemon.h"
#include "wire/protocol.h"

namespace tessera::face {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Of memory_pinned_by: these reasons, and 0 for all others.
json Pinned(const json& reasons = json::object()) {
  json by = json::object();
  for (const char* name : server::kPinNames) by[name] = reasons.value(name, 0ull);
  return by;
}

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
    json body;
    std::string type;
  };
  static Answer Read(const httplib::Result& result) {
    if (!result) {
      ADD_FAILURE() << "no answer: " << httplib::to_string(result.error());
      return {};
    }
    return {result->status, json::parse(result->body, nullptr, false), result->get_header_value("Content-Type")};
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

TEST_F(HttpServerTest, Health) {
  const auto answer = Get("/healthz");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.type, "application/json");
  EXPECT_EQ(answer.body, json({{"status", "ok"},
                               {"version", TESSERA_VERSION},
                               {"protocol", wire::kProtocolVersion},
                               {"soft", true},
                               {"pid", getpid()},
                               {"embedded", false}}));
}

TEST_F(HttpServerTest, GpusHaveEveryField) {
  const auto gpus = Get("/v1/gpus").body.at("gpus");
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[1], json({{"index", 1},
                           {"uuid", "GPU-02020300-0000-0000-0000-000000000000"},
                           {"name", "Fake GPU"},
                           {"soft", true},
                           {"memory_total_bytes", 10 * kGiB},
                           {"memory_reserve_bytes", 0},
                           {"memory_used_bytes", 0},
                           {"memory_promised_bytes", 0},
                           {"memory_unmanaged_bytes", 0},
                           {"context_bytes", 100 * kMiB},
                           {"swap", nullptr},
                           {"compute_requested_pct", 0.0},
                           {"compute_busy_pct", 0.0},
                           {"vgpus", 0},
                           {"processes", 0},
                           {"holder", nullptr},
                           {"health",
                            {{"failed", false},
                             {"why", nullptr},
                             {"xid_errors", 0},
                             {"ecc_errors", 0},
                             {"last_xid", nullptr},
                             {"last", nullptr},
                             {"last_us", nullptr}}},
                           {"control",
                            {{"by", "gate"},
                             {"why", "there is no way to steer them"},
                             {"driver_calls", 0},
                             {"driver_calls_per_s", 0.0},
                             {"freezes", 0},
                             {"thaws", 0},
                             {"slices", 0},
                             {"failures", 0},
                             {"freeze_p50_us", 0},
                             {"freeze_p99_us", 0},
                             {"thaw_p50_us", 0},
                             {"thaw_p99_us", 0}}}}));
}

TEST_F(HttpServerTest, FreezingAndAdopting) {
  ASSERT_EQ(Post("/v1/vgpus", R"({"name":"a","gpu":0,"compute_priority":3})").status, 201);
  server::FakeClient client = daemon_.Connect("a");
  const std::string process = "/v1/processes/" + std::to_string(getpid());
  EXPECT_EQ(Post(process + "/freeze", "{}").status, 204);
  EXPECT_EQ(Get("/v1/processes").body.at("processes")[0].at("frozen"), json({"operator"}));
  EXPECT_EQ(Post(process + "/thaw", "{}").status, 204);
  EXPECT_EQ(Get("/v1/processes").body.at("processes")[0].at("frozen"), json::array());
  EXPECT_EQ(Post("/v1/vgpus/a/freeze", "{}").status, 204);
  EXPECT_EQ(Get("/v1/vgpus/a").body.at("frozen"), json({"operator"}));
  EXPECT_EQ(Post("/v1/vgpus/a/thaw", "{}").status, 204);
  EXPECT_EQ(Get("/v1/vgpus/a").body.at("compute_priority"), 3);

  EXPECT_EQ(Post("/v1/processes/1/freeze", "{}").status, 404);
  EXPECT_EQ(Post("/v1/vgpus/b/freeze", "{}").status, 404);
  EXPECT_EQ(Post(process + "/adopt", R"({"vgpu":"a"})").status, 409);
  EXPECT_EQ(Post("/v1/processes/1/adopt", R"({"vgpu":"a"})").status, 501);
  EXPECT_EQ(Post("/v1/processes/1/adopt", R"({"vgpu":7})").status, 400);
  const json checks = Get("/v1/doctor").body.at("checks");
  EXPECT_EQ(checks[0].at("name"), "channel control");
  EXPECT_FALSE(checks[0].at("ok"));
  EXPECT_EQ(checks.back().at("name"), "swap");
}

TEST_F(HttpServerTest, AVGpuFromCreationToRemoval) {
  auto answer = Post(
      "/v1/vgpus",
      R"({"name":"a","gpu":1,"memory_request":"1G","memory_limit":"4G","compute_request":30,"compute_limit":"60%"})");
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(
      answer.body,
      json(
          {{"name", "a"},
           {"tag", answer.body.value("tag", "")},
           {"gpu", 1},
           {"gpu_uuid", "GPU-02020300-0000-0000-0000-000000000000"},
           {"uid", getuid()},
           {"ephemeral", false},
           {"owner_pid", nullptr},
           {"memory_request_bytes", kGiB},
           {"memory_limit_bytes", 4 * kGiB},
           {"memory_max_bytes", 4 * kGiB},
           {"memory_current_bytes", 0},
           {"memory_peak_bytes", 0},
           {"memory_available_bytes", 4 * kGiB},
           {"memory_resident_bytes", 0},
           {"memory_pinned_bytes", 0},
           {"memory_pinned_by", Pinned()},
           {"memory_over_limit_bytes", 0},
           {"over_limit_error", nullptr},
           {"memory_swap_current_bytes", 0},
           {"memory_swap_max_bytes", nullptr},
           {"moved_out_bytes", 0},
           {"moved_in_bytes", 0},
           {"moving_us", 0},
           {"memory_pressure", {{"some_avg10", 0.0}, {"some_avg60", 0.0}, {"some_avg300", 0.0}, {"some_total_us", 0}}},
           {"compute_pressure", {{"some_avg10", 0.0}, {"some_avg60", 0.0}, {"some_avg300", 0.0}, {"some_total_us", 0}}},
           {"oom_events", 0},
           {"compute_request_pct", 30.0},
           {"compute_limit_pct", 60.0},
           {"compute_weight", 100},
           {"compute_priority", 8},
           {"slice_us", 0},
           {"frozen", json::array()},
           {"compute_current_pct", 0.0},
           {"compute_busy_us", 0},
           {"compute_waited_us", 0},
           {"compute_throttled_us", 0},
           {"compute_debt_us", 0},
           {"throttled", 0},
           {"preempted", 0},
           {"freezes", 0},
           {"state", "idle"},
           {"gpu_failed", false},
           {"gpu_faults", 0},
           {"processes", json::array()}}));
  EXPECT_EQ(Get("/v1/vgpus/a").body, answer.body);
  EXPECT_EQ(Get("/v1/vgpus").body.at("vgpus"), json::array({answer.body}));

  answer = Patch("/v1/vgpus/a", R"({"memory_limit":2147483648,"compute_weight":7})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.at("memory_limit_bytes"), 2 * kGiB);
  EXPECT_EQ(answer.body.at("compute_weight"), 7);
  EXPECT_EQ(Patch("/v1/vgpus/a", R"({"memory_limit":null})").body.at("memory_limit_bytes"), 10 * kGiB);

  EXPECT_EQ(Delete("/v1/vgpus/a").status, 204);
  EXPECT_EQ(Get("/v1/vgpus/a").status, 404);
}

TEST_F(HttpServerTest, TheMakerIsWhoTheKernelSays) {
  const httplib::Headers forged = {{"REMOTE_ADDR", "12345"}};
  const auto answer = Read(client_.Post("/v1/vgpus", forged, R"({"name":"a"})", "application/json"));
  EXPECT_EQ(answer.body.at("uid"), getuid());
}

TEST_F(HttpServerTest, Processes) {
  ASSERT_EQ(Post("/v1/vgpus", R"({"name":"a","gpu":0})").status, 201);
  server::FakeClient client = daemon_.Connect("a");
  client.Reserve(300 * kMiB);
  client.Page().submissions = 5;
  client.Page().busy_ns = 7'000'000;
  client.Page().pinned_by[static_cast<std::size_t>(wire::PinReason::kPool)] = 100 * kMiB;
  ASSERT_TRUE(client.TakeToken());
  auto processes = Get("/v1/processes").body.at("processes");
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_GT(processes[0].at("started_us"), 1'700'000'000'000'000);
  processes[0].erase("started_us");
  EXPECT_EQ(processes[0], json({{"pid", getpid()},
                                {"name", "fake"},
                                {"uid", getuid()},
                                {"vgpu", "a"},
                                {"gpu", 0},
                                {"managed", true},
                                {"adopted", false},
                                {"enforce", "shim"},
                                {"complete", true},
                                {"channels", 0},
                                {"groups", json::array()},
                                {"frozen", json::array()},
                                {"memory_bytes", 300 * kMiB},
                                {"memory_measured_bytes", nullptr},
                                {"memory_resident_bytes", 300 * kMiB},
                                {"memory_pinned_bytes", 300 * kMiB},
                                {"memory_pinned_by", Pinned({{"pool", 100 * kMiB}, {"other", 200 * kMiB}})},
                                {"memory_exported_bytes", 0},
                                {"memory_swapped_bytes", 0},
                                {"memory_stranded_bytes", 0},
                                {"memory_hot_out_bytes", 0},
                                {"memory_evicting_bytes", 0},
                                {"evict_error", nullptr},
                                {"moved_out_bytes", 0},
                                {"moved_in_bytes", 0},
                                {"moving_us", 0},
                                {"memory_used_on_host_bytes", 0},
                                {"memory_on_host_us", 0},
                                {"memory_on_host_told_us", nullptr},
                                {"memory_waited_us", 0},
                                {"room_waits", 0},
                                {"contexts", 0},
                                {"compute_busy_us", 7000},
                                {"compute_waited_us", 0},
                                {"submissions", 5},
                                {"gate_waits", 0},
                                {"gate_wait_us", 0},
                                {"window", 0},
                                {"oom_errors", 0},
                                {"state", "active"},
                                {"gpu_failed", false}}));
  EXPECT_EQ(Get("/v1/gpus").body.at("gpus")[0].at("holder"), "a");
  EXPECT_EQ(Delete("/v1/vgpus/a").status, 409);
  EXPECT_EQ(Delete("/v1/vgpus/a?force=1").status, 204);
}

TEST_F(HttpServerTest, WhereMemoryIsNotSwappedNothingIsEvicted) {
  ASSERT_EQ(Post("/v1/vgpus", R"({"name":"a","gpu":0})").status, 201);
  server::FakeClient client = daemon_.Connect("a");
  const std::string evict = "/v1/processes/" + std::to_string(getpid()) + "/evict";
  const auto refused = Post(evict, R"({"to_bytes":0})");
  EXPECT_EQ(refused.status, 501);
  EXPECT_NE(refused.body.at("hint").get<std::string>().find("swap.size"), std::string::npos);
  EXPECT_EQ(Post("/v1/vgpus/a/evict", "{}").status, 501);
  EXPECT_EQ(Post("/v1/vgpus/b/evict", "{}").status, 404);
  EXPECT_EQ(Post("/v1/processes/1/evict", "{}").status, 404);
  EXPECT_EQ(Post(evict, R"({"to_bytes":-1})").status, 400);
  EXPECT_EQ(Post(evict, R"({"bytes":1})").status, 400);
  EXPECT_EQ(Post(evict, "[]").status, 400);
}

TEST_F(HttpServerTest, MemoryThatIsSwapped) {
  server::TestDaemon daemon{SetupWithSwap("2G")};
  daemon.Make({.name = "a", .gpu = "0", .memory_limit = "4G", .memory_max = "20G", .memory_swap_max = "512M"});
  const auto vgpu = daemon.Report("a");
  EXPECT_EQ(vgpu.memory_max, 4 * kGiB + 512 * kMiB);
  EXPECT_EQ(vgpu.memory_swap_max, 512 * kMiB);
  const json swap = ToJson(daemon.Api().Gpus().value().at(0)).at("swap");
  EXPECT_EQ(swap, json({{"max_bytes", kGiB},  // two GPUs
                        {"pool_bytes", 0},
                        {"pool_used_bytes", 0},
                        {"pool_goal_bytes", 0},
                        {"file_bytes", 0},
                        {"file_used_bytes", 0},
                        {"file_error", nullptr},
                        {"capacity_bytes", 10 * kGiB - server::FakeDriver::kContext},
                        {"mover_pid", nullptr},
                        {"decision", swap.at("decision")},
                        {"mode", "together"},
                        {"turn_us", 0}}));
}

TEST_F(HttpServerTest, AChangeOfWhatSomebodyElseChangedIsRefused) {
  ASSERT_EQ(Post("/v1/vgpus", R"({"name":"a","gpu":0})").status, 201);
  const auto tag = [&] { return client_.Get("/v1/vgpus/a")->get_header_value("ETag"); };
  const auto change = [&](const std::string& if_match) {
    return client_.Patch("/v1/vgpus/a", {{"If-Match", if_match}}, R"({"compute_weight":200})", "application/json");
  };
  const std::string first = tag();
  EXPECT_EQ(first, '"' + Get("/v1/vgpus/a").body.at("tag").get<std::string>() + '"');
  EXPECT_EQ(Patch("/v1/vgpus/a", R"({"compute_limit":50})").status, 200) << "somebody else";
  EXPECT_NE(tag(), first);
  const auto refused = change(first);
  EXPECT_EQ(refused->status, 412);
  EXPECT_EQ(json::parse(refused->body).at("code"), "ESTALE");
  EXPECT_EQ(Get("/v1/vgpus/a").body.at("compute_weight"), 100);
  EXPECT_EQ(client_.Delete("/v1/vgpus/a", {{"If-Match", first}})->status, 412);
  EXPECT_EQ(change("*")->status, 200);
  const auto changed = change(tag());
  EXPECT_EQ(changed->status, 200);
  EXPECT_EQ(changed->get_header_value("ETag"), tag());
  EXPECT_EQ(client_.Delete("/v1/vgpus/a", {{"If-Match", tag()}})->status, 204);
}

TEST_F(HttpServerTest, OneProcess) {
  ASSERT_EQ(Post("/v1/vgpus", R"({"name":"a","gpu":0})").status, 201);
  server::FakeClient client = daemon_.Connect("a");
  const auto mine = Get("/v1/processes/" + std::to_string(getpid())).body.at("processes");
  ASSERT_EQ(mine.size(), 1u);
  EXPECT_EQ(mine[0].at("pid"), getpid());
  EXPECT_EQ(Get("/v1/processes/1").status, 404);
  EXPECT_EQ(Get("/v1/processes/x").status, 404);
}

TEST_F(HttpServerTest, ProblemsSayWhatToDo) {
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

TEST_F(HttpServerTest, WrongRequestsAreRefusedByField) {
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
}

// Copying such a value takes a stack as deep, which threads need not have.
TEST_F(HttpServerTest, DeeplyNestedValuesAreRefused) {
  constexpr std::size_t kDepth = 12'000;
  std::string nested;
  for (std::size_t i = 0; i < kDepth; ++i) nested += R"({"":)";
  nested += "1" + std::string(kDepth, '}');
  for (const char* field : {"name", "gpu", "memory_max", "compute_weight", "ephemeral", "owner_pid", "none"})
    EXPECT_EQ(Post("/v1/vgpus", fmt::format(R"({{"{}":{}}})", field, nested)).status, 400) << field;
}

TEST_F(HttpServerTest, WrongPathsAndMethods) {
  EXPECT_EQ(Get("/v2/gpus").status, 404);
  EXPECT_EQ(Get("/v2/gpus").body.at("code"), "ENOENT");
  EXPECT_EQ(Get("/v1/vgpus/none").status, 404);
  EXPECT_EQ(Delete("/v1/gpus").status, 405);
  EXPECT_EQ(Patch("/v1/processes", "{}").status, 405);
  EXPECT_EQ(Post("/v1/vgpus/a", "{}").status, 405);
  EXPECT_EQ(Read(client_.Put("/v1/vgpus/a", "{}", "application/json")).status, 405);
}

TEST_F(HttpServerTest, BodiesAreBounded) {
  const auto answer = Post("/v1/vgpus", std::string(70'000, ' '));
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.body.at("code"), "EMSGSIZE");
}

TEST_F(HttpServerTest, ARequestWithoutABodyIsAnsweredAtOnce) {
  const UniqueFd fd = Connect();
  const std::string_view request = "POST /v1/vgpus HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(send(fd.Get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  char reply[1024] = {};
  ASSERT_GT(recv(fd.Get(), reply, sizeof reply - 1, 0), 0);
  EXPECT_THAT(reply, HasSubstr("400"));
}

TEST_F(HttpServerTest, EndlessHeadersEndTheConnection) {
  const UniqueFd fd = Connect();
  std::string chunk = "GET /healthz HTTP/1.1\r\n";
  ssize_t sent;
  while ((sent = send(fd.Get(), chunk.data(), chunk.size(), MSG_NOSIGNAL)) > 0)
    chunk = "X: " + std::string(4000, 'x') + "\r\n";
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << strerror(errno);
  EXPECT_EQ(Get("/healthz").status, 200);
}

// Served by a few threads, each of which would wait ten seconds for a silent one.
TEST_F(HttpServerTest, SilentClientsHoldUpNobody) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 64; ++i) silent.push_back(Connect());
  client_.set_read_timeout(30);
  EXPECT_EQ(Get("/healthz").status, 200);
}

TEST_F(HttpServerTest, PartsAreNotServed) {
  const auto whole = client_.Get("/healthz");
  for (const char* range : {"bytes=0-5", "bytes=0-0,1-1,0-,0-,0-", "bytes=5000-", "bytes=-1"}) {
    const auto answer = client_.Get("/healthz", {{"Range", range}});
    ASSERT_TRUE(whole && answer) << range;
    EXPECT_EQ(answer->status, 200) << range;
    EXPECT_EQ(answer->body, whole->body) << range;
  }
}

TEST_F(HttpServerTest, HeadIsGetWithoutABody) {
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
TEST_F(HttpServerTest, FollowersBeyondTheMostAreRefusedAndNotClosedLater) {
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

TEST_F(HttpServerTest, SlowReadersHoldUpNoProgram) {
  ASSERT_EQ(Post("/v1/vgpus", R"({"name":"a","gpu":0})").status, 201);
  std::vector<UniqueFd> slow;
  for (int n = 0; n < 20; ++n) slow.push_back(Connect());  // all of the server's threads wait for a request
  EXPECT_TRUE(daemon_.Connect("a").TakeToken());
}

}  // namespace
}  // namespace tessera::face
