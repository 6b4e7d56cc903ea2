#include "wire/protocol.h"

#include <gtest/gtest.h>

#include <vector>

#include "wire/page.h"

namespace tessera::wire {
namespace {

std::vector<std::byte> Packet(const auto& message) {
  const auto bytes = BytesOf(message);
  return {bytes.begin(), bytes.end()};
}

TEST(Protocol, RoundTrip) {
  Hello hello{.pid = 42};
  SetText(hello.vgpus, "a,b");
  const auto packet = Packet(Make(hello, 3));
  Header header;
  ASSERT_EQ(ReadHeader(packet, header), Fault::kNone);
  EXPECT_EQ(header.gpu, 3u);
  const auto read = ReadBody<Hello>(header, packet);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->pid, 42);
  EXPECT_EQ(TextOf(read->vgpus), "a,b");
}

TEST(Protocol, AnEmptyBodyIsNoBytes) {
  const auto packet = Packet(Make(Listener{}));
  EXPECT_EQ(packet.size(), sizeof(Header));
  Header header;
  ASSERT_EQ(ReadHeader(packet, header), Fault::kNone);
  EXPECT_TRUE(ReadBody<Listener>(header, packet));
}

TEST(Protocol, EveryTruncationIsRefused) {
  const auto packet = Packet(Make(Reserve{.bytes = 1}));
  for (std::size_t n = 0; n < packet.size(); ++n) {
    Header header;
    EXPECT_NE(ReadHeader(std::span(packet).first(n), header), Fault::kNone) << n;
  }
}

TEST(Protocol, OtherVersionIsToldApartFromGarbage) {
  auto packet = Packet(Make(Reserve{.bytes = 1}));
  Header header;
  packet[4] = std::byte{99};
  EXPECT_EQ(ReadHeader(packet, header), Fault::kOtherVersion);
  EXPECT_EQ(header.version, 99);
  packet[0] = std::byte{0};
  EXPECT_EQ(ReadHeader(packet, header), Fault::kBadMagic);
}

TEST(Protocol, ABodyOfAnotherTypeIsNotRead) {
  const auto packet = Packet(Make(Reserve{.bytes = 1}));
  Header header;
  ASSERT_EQ(ReadHeader(packet, header), Fault::kNone);
  EXPECT_FALSE(ReadBody<Return>(header, packet));
  EXPECT_FALSE(ReadBody<Hello>(header, packet));
}

TEST(Protocol, LongTextIsCutAndTerminated) {
  Refused refused;
  SetText(refused.text, std::string(1000, 'x'));
  EXPECT_EQ(TextOf(refused.text).size(), sizeof refused.text - 1);
  std::memset(refused.text, 'y', sizeof refused.text);
  EXPECT_EQ(TextOf(refused.text).size(), sizeof refused.text);
}

TEST(Page, StartsClosed) {
  Page page;
  EXPECT_EQ(page.gate.load(), GateOrder::kClosed);
  EXPECT_EQ(page.magic, kPageMagic);
}

}  // namespace
}  // namespace tessera::wire
