#include "plan/input/mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/size.h"
#include "base/testing/temporary_folder.h"
#include "plan/testing/read_text.h"

namespace tessera::plan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr const char* kLeast = "[[tenant]]\nname = \"a\"\nmemory = \"1G\"\nservice = \"10ms\"\n";

Result<Workload> MixOf(const std::string& text) { return WorkloadOf("mixes/x.toml", text); }
// The least that a tenant must say, and more.
Result<Workload> MixWith(const std::string& more) { return MixOf(kLeast + more); }

TEST(Mix, ATenantThatSaysLittle) {
  const auto mix = MixOf(kLeast);
  ASSERT_TRUE(mix) << mix.error().Text();
  EXPECT_EQ(mix->title, "x.toml");
  EXPECT_EQ(mix->length, 0);
  EXPECT_EQ(mix->interval, 0);
  EXPECT_THAT(mix->notes, IsEmpty());
  ASSERT_EQ(mix->tenants.size(), 1u);
  const Tenant& a = mix->tenants[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.memory, kGiB);
  EXPECT_EQ(a.memory_request, 0u);
  EXPECT_EQ(a.service, 10 * kMillisecond);
  EXPECT_EQ(a.bursts_alone, 0);
  EXPECT_EQ(a.arrivals.kind, Arrivals::Kind::kClosed);
  EXPECT_EQ(a.gpus, 1u);
  EXPECT_EQ(a.request_pct, 0);
  EXPECT_EQ(a.limit_pct, 100);
  EXPECT_EQ(a.speed.At(0.5), 0.5);
  EXPECT_FALSE(a.goal);
  EXPECT_THAT(a.samples, IsEmpty());
}

TEST(Mix, ATenantThatSaysAll) {
  const auto mix = MixOf(R"(
title = "all"
length = "1.5min"
[[tenant]]
name = "llm"
count = 2
group = "team"
memory = "20G"
memory_request = "512M"
gpus = 2
compute = "30:60"
weight = 200
priority = 2
goal = "p99=20ms"
service = "12ms"
rate_alone = 50
arrivals = { poisson = 12.5 }
speed = [[0.1, 0.3], [0.5, 0.9]]
bandwidth = 0.3
)");
  ASSERT_TRUE(mix) << mix.error().Text();
  EXPECT_EQ(mix->title, "all");
  EXPECT_EQ(mix->length, 90 * kSecond);
  ASSERT_EQ(mix->tenants.size(), 2u);
  EXPECT_EQ(mix->tenants[0].name, "llm-1");
  const Tenant& llm = mix->tenants[1];
  EXPECT_EQ(llm.name, "llm-2");
  EXPECT_EQ(llm.group, "team");
  EXPECT_EQ(llm.memory, 20 * kGiB);
  EXPECT_EQ(llm.memory_request, 512 * kMiB);
  EXPECT_EQ(llm.gpus, 2u);
  EXPECT_EQ(llm.request_pct, 30);
  EXPECT_EQ(llm.limit_pct, 60);
  EXPECT_EQ(llm.weight, 200u);
  EXPECT_EQ(llm.priority, 2u);
  EXPECT_EQ(sched::FormatGoal(*llm.goal), "p99=20ms");
  EXPECT_EQ(llm.bursts_alone, 50);
  EXPECT_EQ(llm.arrivals.kind, Arrivals::Kind::kPoisson);
  EXPECT_EQ(llm.arrivals.per_second, 12.5);
  EXPECT_DOUBLE_EQ(llm.speed.At(0.3), 0.6);
  EXPECT_EQ(llm.bandwidth, 0.3);
}

TEST(Mix, TheExampleOfTheDocuments) {
  std::ifstream file(TESSERA_DOCS "/plan-input.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = text.find("```toml\n", text.find("## Mixes")) + 8;
  const auto mix = MixOf(text.substr(begin, text.find("```", begin) - begin));
  ASSERT_TRUE(mix) << mix.error().Text();
  EXPECT_EQ(mix->tenants.size(), 4u);
  EXPECT_EQ(mix->tenants[0].name, "service");
  EXPECT_EQ(mix->tenants[3].name, "batch-3");
}

TEST(Mix, FormsOfValues) {
  EXPECT_EQ(MixWith("compute = 30")->tenants[0].limit_pct, 30);
  EXPECT_EQ(MixWith("compute = \"30\"")->tenants[0].request_pct, 30);
  EXPECT_EQ(MixWith("sms = 0.25")->tenants[0].speed.At(0.25), 1);
  EXPECT_EQ(MixWith("sms = 1")->tenants[0].speed.At(0.25), 0.25);
  EXPECT_EQ(MixWith("arrivals = \"closed\"")->tenants[0].arrivals.kind, Arrivals::Kind::kClosed);
  const auto even = MixWith("arrivals = { every = \"20ms\" }");
  ASSERT_TRUE(even) << even.error().Text();
  EXPECT_EQ(even->tenants[0].arrivals.kind, Arrivals::Kind::kEven);
  EXPECT_EQ(even->tenants[0].arrivals.per_second, 50);
  const auto rate = MixOf("[[tenant]]\nname = \"a\"\nmemory = \"1G\"\nrate_alone = 40\n");
  ASSERT_TRUE(rate) << rate.error().Text();
  EXPECT_EQ(rate->tenants[0].service, 25 * kMillisecond);
  EXPECT_EQ(rate->tenants[0].bursts_alone, 40);
}

TEST(Mix, WrongKeysSayTheirLineAndTheNearest) {
  EXPECT_EQ(ErrorOf(MixWith("rate_alon = 1")), "mixes/x.toml:5: unknown key \"rate_alon\"; did you mean rate_alone?");
  EXPECT_EQ(ErrorOf(MixOf("tittle = \"x\"\n")), "mixes/x.toml:1: unknown key \"tittle\"; did you mean title?");
  EXPECT_EQ(ErrorOf(MixOf("[[tenants]]\n")), "mixes/x.toml:1: unknown key \"tenants\"; did you mean tenant?");
  EXPECT_EQ(ErrorOf(MixWith("arrivals = { poison = 1 }")),
            "mixes/x.toml:5: arrivals: unknown key \"poison\"; did you mean poisson?");
}

TEST(Mix, WrongValuesSayTheirLineAndWhatIsRight) {
  const std::pair<const char*, const char*> wrong[] = {
      {"count = 0", "count must be a whole number from 1 to 20000"},
      {"count = 1.5", "count must be a whole number"},
      {"count = 20001", "count must be a whole number"},
      {"gpus = -1", "gpus must be a whole number from 1 to 1024"},
      {"weight = 0", "weight must be a whole number from 1 to 10000"},
      {"priority = 16", "priority must be a whole number from 0 to 15"},
      {"group = \"\"", "group must be a text"},
      {"group = \"a\\u001b\"", "group must be a text"},
      {"memory_request = 5", "memory_request must be a size, such as \"20G\""},
      {"memory_request = \"-5G\"", "memory_request: invalid size '-5G'"},
      {"memory_request = \"20%\"", "memory_request: '20%': percentages are not allowed here"},
      {"compute = \"60:30\"", "compute: the request exceeds the limit"},
      {"compute = \"0\"", "compute: the limit is 0"},
      {"compute = 130", "compute: invalid percentage"},
      {"compute = \"130\"", "compute: '130' is more than 100 %"},
      {"goal = \"p99=1us\"", "goal: "},
      {"goal = 20", "goal must be a text"},
      {"rate_alone = -1", "rate_alone must be a number of bursts a second"},
      {"rate_alone = nan", "rate_alone must be a number of bursts a second"},
      {"sms = 0", "sms must be a part of the SMs"},
      {"sms = 1.5", "sms must be a part of the SMs"},
      {"speed = []", "speed must be a list of [SMs, speed]"},
      {"speed = [[0.1]]", "speed must be a list of [SMs, speed]"},
      {"speed = [[0.5, 0.9], [0.1, 0.3]]", "speed: the SMs of the points must ascend"},
      {"bandwidth = 2", "bandwidth must be a part of the memory's bandwidth"},
      {"arrivals = \"poisson\"", "arrivals must be \"closed\", { poisson = 12.5 }"},
      {"arrivals = {}", "arrivals must be \"closed\""},
      {"arrivals = { poisson = 1, every = \"1s\" }", "arrivals must be \"closed\""},
      {"arrivals = { poisson = 0 }", "arrivals: poisson must be a number of bursts a second, above 0"},
      {"arrivals = { every = \"0s\" }", "arrivals: every: '0s' is too short"},
      {"arrivals = { every = 10 }", "arrivals: every must be a duration"},
      {"arrivals = { poisson = 1, client = \"a\" }", "arrivals: only those of a file can have"},
      {"arrivals = { file = \"no/such.csv\" }", "cannot read mixes/no/such.csv: No such file"},
  };
  for (const auto& [text, message] : wrong)
    EXPECT_THAT(ErrorOf(MixWith(text)), StartsWith("mixes/x.toml:5: " + std::string(message))) << text;
}

TEST(Mix, TenantsThatDoNotFitTogether) {
  EXPECT_EQ(ErrorOf(MixOf("")), "mixes/x.toml is empty");
  EXPECT_EQ(ErrorOf(MixOf("title = \"x\"\n")), "mixes/x.toml has no tenants; write a section [[tenant]] for each");
  EXPECT_EQ(ErrorOf(MixOf("[tenant]\n")), "mixes/x.toml:1: tenant must be sections; write [[tenant]] above each");
  EXPECT_EQ(ErrorOf(MixOf("[[tenant]]\nmemory = \"1G\"\n")),
            "mixes/x.toml:1: a tenant has no name; write name = \"...\"");
  EXPECT_EQ(ErrorOf(MixOf("[[tenant]]\nname = \"a\"\n")),
            "mixes/x.toml:1: tenant \"a\" has no memory; write memory = \"20G\"");
  EXPECT_THAT(ErrorOf(MixOf("[[tenant]]\nname = \"a\"\nmemory = \"1G\"\n")),
              StartsWith("mixes/x.toml:1: tenant \"a\" does not say how it works; write service"));
  EXPECT_EQ(ErrorOf(MixWith("memory_request = \"2G\"")),
            "mixes/x.toml:1: tenant \"a\" is promised more memory than it allocates; lower memory_request");
  EXPECT_EQ(ErrorOf(MixWith("sms = 0.5\nspeed = [[0.5, 1.0]]")),
            "mixes/x.toml:1: tenant \"a\" has both sms and speed; write one");
  EXPECT_THAT(ErrorOf(MixWith("rate_alone = 101")), HasSubstr("cannot have so many bursts a second alone"));
  EXPECT_EQ(ErrorOf(MixOf(std::string(kLeast) + kLeast)),
            "mixes/x.toml:5: two tenants have the name \"a\"; rename one");
  EXPECT_EQ(ErrorOf(MixWith("count = 20000\n[[tenant]]\nname = \"b\"\nmemory = \"1G\"\nservice = \"1s\"\n")),
            "mixes/x.toml:6: more than 20000 tenants, copies counted");
}

TEST(Mix, NoToml) {
  EXPECT_THAT(ErrorOf(MixWith("compute =\n")), StartsWith("mixes/x.toml:5: "));
  EXPECT_THAT(ErrorOf(MixOf(std::string("\x7f"
                                        "ELF\0\1\2",
                                        7))),
              StartsWith("mixes/x.toml:1: "));
  EXPECT_THAT(ErrorOf(MixWith("speed = " + std::string(100'000, '['))), StartsWith("mixes/x.toml:5: "));
}

TEST(Mix, ArrivalsOfAFileBesideIt) {
  const TemporaryFolder folder;
  folder.File("clients.csv", "client,at_ms\na,1\nb,2\na,3\n");
  folder.File("tokens.csv",
              "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,100,1\n2023-11-16 18:17:04,200,1\n");
  const auto read = [&](const std::string& text) { return WorkloadOf(folder.path() + "/x.toml", text); };
  const auto clients = read(kLeast + std::string("arrivals = { file = \"clients.csv\", client = \"a\" }\n"));
  ASSERT_TRUE(clients) << clients.error().Text();
  EXPECT_EQ(clients->tenants[0].arrivals.times, (std::vector<Nanos>{kMillisecond, 3 * kMillisecond}));
  EXPECT_EQ(clients->tenants[0].service, 10 * kMillisecond);

  const std::string llm = "[[tenant]]\nname = \"llm\"\nmemory = \"1G\"\narrivals = { file = \"tokens.csv\"";
  const auto tokens = read(llm + ", per_context_token = \"1ms\" }\n");
  ASSERT_TRUE(tokens) << tokens.error().Text();
  EXPECT_EQ(tokens->tenants[0].arrivals.services, (std::vector<Nanos>{100 * kMillisecond, 200 * kMillisecond}));
  EXPECT_EQ(tokens->tenants[0].service, 150 * kMillisecond);
  EXPECT_THAT(ErrorOf(read(llm + " }\n")), HasSubstr("does not say how it works"));
  EXPECT_THAT(ErrorOf(read(llm + ", per_context_token = \"1ms\" }\nservice = \"1ms\"\n")),
              HasSubstr("has a service and times for tokens"));
  EXPECT_THAT(ErrorOf(read(kLeast + std::string("arrivals = { file = \"clients.csv\", client = \"a\", "
                                                "per_context_token = \"1ms\" }\n"))),
              HasSubstr("its file counts none"));
}

}  // namespace
}  // namespace tessera::plan
