#include "plan/input/arrival_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/input/timestamp.h"
#include "plan/testing/read_text.h"

namespace tessera::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<Arrivals> ArrivalsOf(const std::string& text, const ArrivalChoice& choice) {
  auto csv = CsvOf(text);
  if (!csv) return std::unexpected(csv.error());
  return ReadArrivals(*csv, choice);
}

TEST(ArrivalCsv, TokensMakeRequestsOfDifferentLength) {
  const std::string text =
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.9000000,100,10\n2023-11-17 00:00:00.4,0,0\n"
      "2023-11-17 00:00:00.4,1,2";
  const RequestCost cost{.per_context_token = 1000, .per_generated_token = 100'000};
  const auto arrivals = ArrivalsOf(text, {.cost = cost});
  ASSERT_TRUE(arrivals) << arrivals.error().Text();
  EXPECT_EQ(arrivals->kind, Arrivals::Kind::kTimes);
  EXPECT_THAT(arrivals->times, ElementsAre(0, 500 * kMillisecond, 500 * kMillisecond));
  EXPECT_THAT(arrivals->services, ElementsAre(1'100'000, kMicrosecond, 201'000));  // at least a microsecond
  EXPECT_EQ(MeanService(*arrivals, 7), (1'100'000 + 1000 + 201'000) / 3);
  // Without costs of tokens all requests are alike.
  const auto alike = ArrivalsOf(text, {});
  ASSERT_TRUE(alike);
  EXPECT_THAT(alike->services, IsEmpty());
  EXPECT_EQ(MeanService(*alike, 7), 7);
}

TEST(ArrivalCsv, OneOfSeveralClients) {
  const std::string text = "client,at_ms\na,0\na,1.5\nb,0.5\nb,2\n";
  EXPECT_THAT(ArrivalsOf(text, {.client = "b"})->times, ElementsAre(500 * kMicrosecond, 2 * kMillisecond));
  EXPECT_EQ(ErrorOf(ArrivalsOf(text, {})), "x.csv has several clients; name one by `client`");
  EXPECT_EQ(ErrorOf(ArrivalsOf(text, {.client = "c"})), "x.csv has no client \"c\"");
  EXPECT_EQ(ErrorOf(ArrivalsOf("gap_s\n1\n", {.client = "c"})), "x.csv names no clients, so none is \"c\"");
}

TEST(ArrivalCsv, Gaps) {
  EXPECT_THAT(ArrivalsOf("gap_s\n0.5\n0\n1\n", {})->times,
              ElementsAre(500 * kMillisecond, 500 * kMillisecond, 1500 * kMillisecond));
}

TEST(ArrivalCsv, AnyColumnWithAUnit) {
  EXPECT_THAT(ArrivalsOf("x,sent_us\n,10\n,20\n", {.column = "sent_us"})->times, ElementsAre(10'000, 20'000));
  EXPECT_THAT(ArrivalsOf("x,sent_us\n,10\n,20\n", {.column = "sent_us", .gaps = true})->times,
              ElementsAre(10'000, 30'000));
  EXPECT_THAT(ErrorOf(ArrivalsOf("x,sent\n,10\n", {.column = "sent"})),
              HasSubstr("the unit of column sent is not known"));
  EXPECT_EQ(ErrorOf(ArrivalsOf("x,y\n1,2\n", {.column = "z_s"})), "x.csv has no column \"z_s\"");
  EXPECT_THAT(ErrorOf(ArrivalsOf("x,sent_us\n,10\n", {})), HasSubstr("name the one with the times by `column`"));
}

TEST(ArrivalCsv, WrongRowsSayTheirLine) {
  EXPECT_EQ(ErrorOf(ArrivalsOf("client,at_ms\na,5\nb,1\na,4\n", {.client = "a"})),
            "x.csv:4: at_ms: \"4\" is before the arrival above: the clock goes back; sort the file by time");
  EXPECT_EQ(ErrorOf(ArrivalsOf("gap_s\n1\n-1\n", {})), "x.csv:3: gap_s: \"-1\" is below 0");
  EXPECT_EQ(ErrorOf(ArrivalsOf("gap_s\n31622400\n1\n", {})), "x.csv:3: more than a year after the begin");
  EXPECT_EQ(ErrorOf(ArrivalsOf("gap_s\n", {})), "x.csv has no arrivals");
  const std::string columns = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const RequestCost cost{.per_context_token = kMillisecond, .per_generated_token = kMillisecond};
  EXPECT_THAT(ErrorOf(ArrivalsOf(columns + "yesterday,1,1\n", {.cost = cost})),
              HasSubstr("x.csv:2: TIMESTAMP: \"yesterday\" is no time"));
  EXPECT_THAT(ErrorOf(ArrivalsOf(columns + "2023-11-16 18:17:03,-1,1\n", {.cost = cost})), HasSubstr("is below 0"));
  EXPECT_THAT(ErrorOf(ArrivalsOf(columns + "2023-11-16 18:17:03,1e9,1\n", {.cost = cost})),
              HasSubstr("x.csv:2: a request of more than an hour"));
}

TEST(ArrivalCsv, AWorkloadWithoutATomlSaysWhatItAssumes) {
  const auto clients = WorkloadOf("x.csv", "client,at_ms\na,0\na,20\nb,7\n");
  ASSERT_TRUE(clients) << clients.error().Text();
  ASSERT_EQ(clients->tenants.size(), 2u);
  EXPECT_EQ(clients->tenants[0].name, "a");
  EXPECT_EQ(clients->tenants[0].service, 10 * kMillisecond);
  EXPECT_EQ(clients->tenants[0].memory, 20 * kGiB);
  EXPECT_EQ(clients->length, 30 * kMillisecond);
  EXPECT_THAT(clients->notes, ElementsAre("the file does not say how long requests take: 10 ms are assumed",
                                          "the file does not say how much memory programs need: 20 GiB is assumed"));
  const auto tokens =
      WorkloadOf("x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,1000,10\n");
  ASSERT_TRUE(tokens) << tokens.error().Text();
  EXPECT_THAT(tokens->tenants[0].arrivals.services, ElementsAre(60 * kMillisecond));
  EXPECT_EQ(tokens->tenants[0].service, 60 * kMillisecond);
  EXPECT_THAT(tokens->notes[0], HasSubstr("0.05 ms for a token of context and 1 ms for one that is generated"));
  EXPECT_EQ(WorkloadOf("x.csv", "gap_s\n1\n2\n")->tenants[0].name, "requests");
}

TEST(Timestamp, DatesWithTime) {
  EXPECT_EQ(ParseTimestamp("1970-01-01 00:00:00"), 0);
  EXPECT_EQ(ParseTimestamp("1970-01-02T00:00:01.5Z"), 86'401 * kSecond + kSecond / 2);
  EXPECT_EQ(ParseTimestamp("2023-11-16 18:17:03.9799600"), 1'700'158'623 * kSecond + 979'960'000);
  EXPECT_EQ(ParseTimestamp("2024-02-29 00:00:00.0000000009+00:00"), 1'709'164'800 * kSecond);
  for (const char* wrong :
       {"", "2023", "2023-11-16", "2023-11-16 18:17", "2023-13-16 18:17:03", "2023-02-29 00:00:00",
        "2023-11-16 24:00:00", "2023-11-16 18:60:00", "2023-11-16 18:17:03.", "1969-12-31 23:59:59",
        "2023-11-16 18:17:03+02:00", "2023-11-16x18:17:03", "9999-01-01 00:00:00", "2023-1a-16 18:17:03"})
    EXPECT_EQ(ParseTimestamp(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace tessera::plan
