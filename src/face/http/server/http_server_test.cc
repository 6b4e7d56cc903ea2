#include "face/http/server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/size.h"
#include "face/testing/http_server_test.h"
#include "face/text/json.h"
#include "server/testing/test_daemon.h"
#include "wire/protocol.h"

namespace tessera::face {
namespace {

using nlohmann::json;

// Of memory_pinned_by: these reasons, and 0 for all others.
json Pinned(const json& reasons = json::object()) {
  json by = json::object();
  for (const char* name : server::kPinNames) by[name] = reasons.value(name, 0ull);
  return by;
}

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
                           {"driver", nullptr},
                           {"nvlink_group", nullptr},
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
                           {"load_migrations", 0},
                           {"draining", false},
                           {"drain", nullptr},
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
           {"gang", nullptr},
           {"labels", json::object()},
           {"space", nullptr},
           {"sm_limit_pct", 100.0},
           {"sm_reserved", false},
           {"sm_burst", false},
           {"sms", 0},
           {"sms_kept", 0},
           {"goal", nullptr},
           {"bursts",
            {{"count", 0},
             {"requests", 0},
             {"p50_us", nullptr},
             {"p95_us", nullptr},
             {"p99_us", nullptr},
             {"solo_p50_us", nullptr},
             {"attained", nullptr},
             {"violations", 0.0},
             {"verdict", "none"},
             {"reason", nullptr}}},
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
           {"migrating_to", nullptr},
           {"migrate_error", nullptr},
           {"gpu_faults", 0},
           {"processes", json::array()}}));
  EXPECT_EQ(Get("/v1/vgpus/a").body, answer.body);
  EXPECT_EQ(Get("/v1/vgpus").body.at("vgpus"), json::array({answer.body}));

  answer = Patch("/v1/vgpus/a", R"({"memory_limit":2147483648,"compute_weight":7})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.at("memory_limit_bytes"), 2 * kGiB);
  EXPECT_EQ(answer.body.at("compute_weight"), 7);
  EXPECT_EQ(Patch("/v1/vgpus/a", R"({"memory_limit":null})").body.at("memory_limit_bytes"), 10 * kGiB);

  EXPECT_EQ(Patch("/v1/vgpus/a", R"({"goal":"p99=20ms"})").body.at("goal"), "p99=20ms");
  EXPECT_EQ(Patch("/v1/vgpus/a", R"({"goal":"p99=20"})").status, 400);
  EXPECT_EQ(Patch("/v1/vgpus/a", R"({"compute_weight":8})").body.at("goal"), "p99=20ms");
  EXPECT_EQ(Patch("/v1/vgpus/a", R"({"goal":null})").body.at("goal"), nullptr);

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
                                {"suspension", nullptr},
                                {"suspension_left_bytes", nullptr},
                                {"suspended_to", nullptr},
                                {"suspended_by", nullptr},
                                {"suspend_error", nullptr},
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

}  // namespace
}  // namespace tessera::face
