#include "cli/plan/advise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "base/testing/temporary_folder.h"
#include "cli/plan/advise_sources.h"
#include "cli/plan/advise_text.h"
#include "cli/plan/http_get.h"

namespace tessera::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kColumns[] =
    "second,node,gpu,vgpu,duty_pct,memory_mib,request_pct,limit_pct,memory_request_mib,memory_limit_mib";

class MeteredCsv : public testing::Test {
 protected:
  Result<SeenFleet> Read(const std::string& text) { return ReadMeteredCsv(folder_.File("metered.csv", text)); }
  std::string Refusal(const std::string& text) {
    const auto seen = Read(text);
    return seen ? "none" : seen.error().Text();
  }

  const TemporaryFolder folder_;
};

TEST_F(MeteredCsv, ARowIsASampleOfAVgpu) {
  const auto seen = Read(std::string(kColumns) + ",waited_pct,violated,gpu_memory_mib,gpu_type\n" +
                         "0,n1,0,a,30,1024,20,30,2048,4096,50,,81920,H200\n"
                         "10,n1,0,a,10,1024,20,40,2048,4096,50,,81920,H200\n"
                         "10,n2,0,a,5,0,0,100,0,0,,1,,\n");
  ASSERT_TRUE(seen) << seen.error().Text();
  ASSERT_EQ(seen->fleet.gpus.size(), 2u);
  EXPECT_EQ(seen->fleet.gpus[0].memory, 80 * kGiB);
  EXPECT_EQ(seen->fleet.gpus[0].type, "H200");
  ASSERT_EQ(seen->fleet.vgpus.size(), 2u) << "one of each node";
  const auto& first = seen->fleet.vgpus[0];
  EXPECT_EQ(first.limit_pct, 40) << "what it has last";
  EXPECT_EQ(first.memory_request, 2 * kGiB);
  EXPECT_FALSE(first.goal);
  EXPECT_DOUBLE_EQ(first.samples[0].throttled, 0.5) << "it ran as much as its limit permits";
  EXPECT_DOUBLE_EQ(first.samples[1].throttled, 0);
  EXPECT_DOUBLE_EQ(first.samples[1].waited, 0.5);
  const auto& other = seen->fleet.vgpus[1];
  ASSERT_EQ(other.samples.size(), 2u);
  EXPECT_FALSE(other.samples[0].there);
  EXPECT_TRUE(other.samples[1].violated);
  EXPECT_TRUE(other.goal);
}

TEST_F(MeteredCsv, WrongRowsAreNamed) {
  const std::string begin = std::string(kColumns) + "\n";
  EXPECT_THAT(Refusal("second,node\n"), HasSubstr("gpu"));
  EXPECT_THAT(Refusal(begin), HasSubstr("no vGPU was seen"));
  EXPECT_THAT(Refusal(begin + "0,n,0,a,-1,0,0,0,0,0\n"), HasSubstr(":2: duty_pct: \"-1\" is below 0"));
  EXPECT_THAT(Refusal(begin + "0,n,0,a,101,0,0,0,0,0\n"), HasSubstr("above 100"));
  EXPECT_THAT(Refusal(begin + "0,n,0,,1,0,0,0,0,0\n"), HasSubstr("the name is missing"));
  EXPECT_THAT(Refusal(begin + "5,n,0,a,1,0,0,0,0,0\n4,n,0,a,1,0,0,0,0,0\n"),
              HasSubstr(":3: second: the time goes back"));
  EXPECT_THAT(Refusal(begin + "5,n,0,a,1,0,0,0,0,0\n5,n,0,a,1,0,0,0,0,0\n"), HasSubstr(":3: a second row for vGPU a"));
}

TEST(AdviceCommands, AVgpuChangesByOneCommand) {
  SeenFleet seen;
  seen.fleet.gpus = {{.node = "n1", .gpu = "0"}, {.node = "n2", .gpu = "1"}};
  for (const char* name : {"a", "of pod", "c"}) seen.fleet.vgpus.push_back({.name = name, .gpu = 0, .request_pct = 40});
  seen.pods[1] = {.namespace_name = "team", .pod = "llm-0"};
  using sched::Advice;
  const std::vector<Advice> advice = {
      {.kind = Advice::Kind::kRequestTooLarge, .vgpus = {0}, .reason = "", .request_pct = 10},
      {.kind = Advice::Kind::kMemoryTooLarge, .vgpus = {0}, .reason = "", .memory_request = 768 * kMiB},
      {.kind = Advice::Kind::kLimitTooSmall, .vgpus = {1}, .reason = "", .request_pct = 15, .limit_pct = 60},
      {.kind = Advice::Kind::kTogether, .vgpus = {2}, .reason = "", .moves = {{.vgpu = 2, .to = 1}}},
  };
  EXPECT_THAT(AdviceCommands(seen, advice),
              ElementsAre("# on n1", "tessera vgpu set a --compute 10:100 --memory-request 768M",
                          "kubectl annotate pod --namespace team llm-0 --overwrite "
                          "gpu.tessera.dev/config='{\"compute\":{\"limit\":60.0}}'",
                          "# of pod: let the claim of pod llm-0 ask for compute: 15.0",
                          "# c: start it on GPU 1 of n2 the next time"));
  seen.fleet.vgpus[0].name = "$(reboot)";
  EXPECT_THAT(AdviceCommands(seen, advice)[1], HasSubstr("set '$(reboot)' --compute"));
}

TEST(HttpAddress, IsHostPortAndPath) {
  const auto plain = ParseHttpAddress("http://monitor");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host + "|" + plain->port + "|" + plain->path, "monitor|80|");
  const auto whole = ParseHttpAddress("http://[::1]:9090/prometheus/");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->host + "|" + whole->port + "|" + whole->path, "::1|9090|/prometheus");
  for (const char* wrong :
       {"https://a", "a:9090", "http://", "http://:9090", "http://a:", "http://a/?q=1", "http://a b"})
    EXPECT_FALSE(ParseHttpAddress(wrong)) << wrong;
  EXPECT_EQ(QueryEscaped("rate(a_b[5m])"), "rate%28a_b%5B5m%5D%29");
}

}  // namespace
}  // namespace tessera::cli
