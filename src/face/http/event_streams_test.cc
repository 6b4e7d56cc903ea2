#include "face/http/event_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <vector>

#include "base/testing/wait_until.h"

namespace tessera::face {
namespace {

using server::EventType;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

void Note(const std::string& text) { server::events::Note({.type = EventType::kVGpuCreated, .text = text}); }

class EventStreamsTest : public testing::Test {
 protected:
  // A client's end of a new stream.
  UniqueFd Open(std::uint64_t after) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    auto place = streams_.TakePlace();
    if (place) streams_.Add(std::move(*place), UniqueFd(ends[0]), after);
    return UniqueFd(ends[1]);
  }
  // Until that was seen, or the stream ended.
  static std::string ReadUntil(const UniqueFd& fd, const std::string& wanted) {
    std::string text;
    while (text.find(wanted) == std::string::npos) {
      pollfd ready{fd.Get(), POLLIN, 0};
      if (poll(&ready, 1, 20'000) <= 0) {
        ADD_FAILURE() << "waited in vain for " << wanted << " after " << text;
        break;
      }
      char piece[65536];
      const ssize_t got = recv(fd.Get(), piece, sizeof piece, 0);
      if (got <= 0) break;
      text.append(piece, static_cast<std::size_t>(got));
    }
    return text;
  }

  EventStreams streams_;
};

TEST_F(EventStreamsTest, SendsWhatWasAndWhatComes) {
  const std::uint64_t before = server::events::Last();
  Note("old");
  const UniqueFd client = Open(before);
  EXPECT_THAT(ReadUntil(client, "old"), HasSubstr("event: vgpu.created\ndata: {"));
  Note("new");
  EXPECT_THAT(ReadUntil(client, "\"new\""), Not(HasSubstr("old")));
}

TEST_F(EventStreamsTest, OneThatReadsNothingHoldsUpNobody) {
  const UniqueFd lazy = Open(server::events::Last());
  const UniqueFd eager = Open(server::events::Last());
  ReadUntil(eager, "retry");
  for (std::size_t i = 0; i < 2 * server::events::kKept; ++i) Note(std::string(400, 'x'));
  Note("the last one");
  ReadUntil(eager, "the last one");
  const std::string late = ReadUntil(lazy, "the last one");
  EXPECT_THAT(late, HasSubstr("event: lost\ndata: {\"events\":")) << "more was noted than is kept";
}

TEST_F(EventStreamsTest, APlaceIsTakenBeforeItsStreamIsAdded) {
  std::vector<EventStreams::Place> places;
  while (auto place = streams_.TakePlace()) places.push_back(std::move(*place));
  EXPECT_EQ(places.size(), EventStreams::kMost);
  places.pop_back();
  EXPECT_TRUE(streams_.TakePlace()) << "an answer whose head could not be written gives its place back";
}

TEST_F(EventStreamsTest, UsersTakeNoPlaceOfOperators) {
  std::vector<EventStreams::Place> places;
  for (uid_t user = 1000; auto place = streams_.TakePlace(user); ++user) {
    places.push_back(std::move(*place));
    for (std::size_t i = 1; i < EventStreams::kMostOfAUser; ++i) {
      auto another = streams_.TakePlace(user);
      if (another) places.push_back(std::move(*another));
    }
    if (places.size() < EventStreams::kMostOfUsers) EXPECT_FALSE(streams_.TakePlace(user));
  }
  EXPECT_EQ(places.size(), EventStreams::kMostOfUsers);
  EXPECT_TRUE(streams_.TakePlace());
  places.pop_back();
  EXPECT_TRUE(streams_.TakePlace(1));
}

TEST_F(EventStreamsTest, AUserGetsWhatConcernsTheUser) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  streams_.Add(*streams_.TakePlace(1001), UniqueFd(ends[0]), server::events::Last());
  const UniqueFd client(ends[1]);
  Note("nobody's");
  server::events::Note({.type = EventType::kVGpuCreated, .owner = 1002, .text = "another's"});
  server::events::Note({.type = EventType::kProcessStarted, .owner = 0, .user = 1001, .text = "a program"});
  server::events::Note({.type = EventType::kVGpuCreated, .owner = 1001, .text = "the last"});
  const std::string text = ReadUntil(client, "the last");
  EXPECT_THAT(text, HasSubstr("a program"));
  EXPECT_THAT(text, Not(HasSubstr("nobody's")));
  EXPECT_THAT(text, Not(HasSubstr("another's")));
}

TEST_F(EventStreamsTest, AClientThatLeavesFreesItsPlace) {
  std::vector<UniqueFd> clients;
  for (std::size_t i = 0; i < EventStreams::kMost; ++i) clients.push_back(Open(server::events::Last()));
  EXPECT_FALSE(streams_.TakePlace());
  clients.clear();
  WaitUntil([this] { return streams_.TakePlace(); });
  const UniqueFd again = Open(server::events::Last());
  EXPECT_THAT(ReadUntil(again, "retry"), StartsWith("retry: "));
}

TEST_F(EventStreamsTest, AnIdTellsWhereToGoOn) {
  server::Event event{.number = 41, .type = EventType::kError, .vgpu = "a", .pid = 3, .text = "two\nlines \xff"};
  const std::string text = ToSse(event);
  EXPECT_THAT(text, EndsWith("\n\n"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 4) << "a text is one line, whatever is in it: " << text;
  const std::size_t end = text.find('\n');
  EXPECT_EQ(NumberOfEventId(text.substr(4, end - 4)), 41u);
  EXPECT_EQ(NumberOfEventId("1-41"), 0u) << "of another daemon";
  EXPECT_EQ(NumberOfEventId(text.substr(4, end - 4) + "x"), 0u);
  EXPECT_EQ(NumberOfEventId(""), 0u);
}

}  // namespace
}  // namespace tessera::face
