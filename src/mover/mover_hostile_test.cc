// Programs that do what they must not: their line is closed, and nobody else notices.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/seqpacket.h"
#include "mover/testing/test_mover.h"

namespace tessera::mover {
namespace {

using wire::kChunkBytes;
using wire::LineMessage;
using wire::LineType;
using wire::MoverType;

class Misbehaviour : public testing::Test {
 protected:
  void SetUp() override {
    mover_.Pool(8, 8);
    bad_.pid = EndedProcess();  // by the time that it is forgotten
    mover_.Program(1, bad_, 1);
    mover_.Program(2, good_, 2);
  }
  // The bad one's line is closed, and the good one's is not.
  void ExpectClosed(MoverType type = MoverType::kEvict, std::uint64_t chunks = 4) {
    EXPECT_EQ(mover_.Move(1, type, chunks).error, EPIPE);
    EXPECT_TRUE(mover_.Until([&] { return bad_.line() < 0; }));
    ExpectOthersWork();
  }
  void ExpectOthersWork() {
    EXPECT_EQ(mover_.Move(2, MoverType::kEvict, 4).error, 0);
    EXPECT_EQ(mover_.Move(2, MoverType::kLoad, 4).error, 0);
    EXPECT_TRUE(good_.IsIntact());
    mover_.Forget(1);
    EXPECT_TRUE(mover_.Until([&] { return mover_.pool().other == 0 && mover_.pool().bytes == 8 * kChunkBytes; }));
  }
  // Wants whole chunks, with memory for each.
  void SendWant(const std::vector<std::uint64_t>& chunks) {
    LineMessage want = {.type = LineType::kWant};
    std::vector<UniqueFd> owned;
    std::vector<int> fds;
    for (const std::uint64_t chunk : chunks) {
      want.chunk[want.count] = chunk;
      want.units[want.count++] = wire::kAllUnits;
      const auto memory = driver_.MakeChunk();
      owned.push_back(driver_.Export(memory));
      fds.push_back(owned.back().Get());
      EXPECT_EQ(driver_.cuda.MemRelease(memory), cuda::CUDA_SUCCESS);
    }
    bad_.Send(want, fds);
  }
  void OfferInstead(std::function<UniqueFd()> make) {
    bad_.instead[LineType::kEvict] = [this, make](const LineMessage&, std::span<UniqueFd>) {
      const UniqueFd file = make();
      const int fd = file.Get();
      bad_.Send({.type = LineType::kOffer, .count = 1, .chunk = {1}, .units = {wire::kAllUnits}}, std::span(&fd, 1));
    };
  }

  const TestDriver& driver_ = TestDriver::Get();
  TestProgram bad_{4, 1}, good_{4, 2};
  TestMover mover_;
};

TEST_F(Misbehaviour, OffersWhatIsNoMemory) {
  OfferInstead([] { return UniqueFd(open("/dev/null", O_RDWR)); });
  ExpectClosed();
}

TEST_F(Misbehaviour, OffersAFile) {
  OfferInstead([] { return UniqueFd(open("/proc/self/exe", O_RDONLY)); });
  ExpectClosed();
}

TEST_F(Misbehaviour, OffersTooLittleMemory) {
  const auto small = driver_.MakeChunk(kChunkBytes / 2);
  OfferInstead([&] { return driver_.Export(small); });
  ExpectClosed();
  EXPECT_EQ(driver_.cuda.MemRelease(small), cuda::CUDA_SUCCESS);
}

// One descriptor for two units of a sparse chunk, and what comes along is larger, or smaller.
TEST_F(Misbehaviour, OffersUnitsOfAnotherSize) {
  for (const std::uint64_t bytes : {kChunkBytes, 3 * wire::kUnitBytes, wire::kUnitBytes}) {
    TestProgram program(0);
    program.pid = EndedProcess();
    mover_.Program(3, program, 1);
    program.instead[LineType::kEvict] = [&](const LineMessage&, std::span<UniqueFd>) {
      const auto memory = driver_.MakeChunk(bytes);
      const UniqueFd file = driver_.Export(memory);
      EXPECT_EQ(driver_.cuda.MemRelease(memory), cuda::CUDA_SUCCESS);
      const int fd = file.Get();
      program.Send({.type = LineType::kOffer, .count = 1, .chunk = {1}, .units = {6}, .begins = {2}},
                   std::span(&fd, 1));
    };
    EXPECT_EQ(mover_.Move(3, MoverType::kEvict, 1).error, EPIPE) << bytes;
    EXPECT_TRUE(mover_.Until([&] { return program.line() < 0; })) << bytes;
    mover_.Forget(3);
  }
  ExpectOthersWork();
}

TEST_F(Misbehaviour, OffersNothingOfAChunk) {
  bad_.instead[LineType::kEvict] = [&](const LineMessage&, std::span<UniqueFd>) {
    bad_.Send({.type = LineType::kOffer, .count = 1, .chunk = {1}});
  };
  ExpectClosed();
}

// Pieces that begin where nothing is to be copied, or units that no piece has.
TEST_F(Misbehaviour, OffersPiecesThatCannotBe) {
  for (const wire::Units begins : {0b101u, 0b1000u}) {
    TestProgram program(0);
    program.pid = EndedProcess();
    mover_.Program(3, program, 1);
    program.instead[LineType::kEvict] = [&](const LineMessage&, std::span<UniqueFd>) {
      LineMessage offer = {.type = LineType::kOffer, .count = 1, .chunk = {1}, .units = {0b1010}, .begins = {begins}};
      std::vector<UniqueFd> owned;
      std::vector<int> fds;
      for (std::uint32_t n = 0; n < wire::PiecesOf(offer, 0); ++n) {
        const auto memory = driver_.MakeChunk(wire::kUnitBytes);
        owned.push_back(driver_.Export(memory));
        fds.push_back(owned.back().Get());
        EXPECT_EQ(driver_.cuda.MemRelease(memory), cuda::CUDA_SUCCESS);
      }
      program.Send(offer, fds);
    };
    EXPECT_EQ(mover_.Move(3, MoverType::kEvict, 1).error, EPIPE) << begins;
    EXPECT_TRUE(mover_.Until([&] { return program.line() < 0; })) << begins;
    mover_.Forget(3);
  }
  ExpectOthersWork();
}

TEST_F(Misbehaviour, SaysThatMoreDescriptorsComeThanOneMessageHas) {
  bad_.instead[LineType::kEvict] = [&](const LineMessage&, std::span<UniqueFd>) {
    LineMessage offer = {.type = LineType::kOffer, .count = 3, .chunk = {1, 2, 3}};
    for (std::uint32_t n = 0; n < 3; ++n) offer.units[n] = offer.begins[n] = wire::kAllUnits;
    bad_.Send(offer);
  };
  ExpectClosed();
}

TEST_F(Misbehaviour, WantsMoreThanThereIsRoomFor) {
  EXPECT_EQ(mover_.Move(1, MoverType::kEvict, 2).error, 0);
  bad_.instead[LineType::kLoad] = [&](const LineMessage& message, std::span<UniqueFd>) {
    EXPECT_EQ(message.room, wire::kUnitsPerChunk);
    SendWant({1000, 1001});
  };
  ExpectClosed(MoverType::kLoad, 1);
}

TEST_F(Misbehaviour, OffersMoreThanItWasAskedFor) {
  bad_.instead[LineType::kEvict] = [&](const LineMessage& message, std::span<UniqueFd>) {
    const auto chunk = driver_.MakeChunk();
    const UniqueFd file = driver_.Export(chunk);
    EXPECT_EQ(driver_.cuda.MemRelease(chunk), cuda::CUDA_SUCCESS);
    LineMessage offer = {.type = LineType::kOffer, .count = message.count + 1};
    std::vector<int> fds;
    for (std::uint32_t i = 0; i <= message.count; ++i) {
      offer.chunk[i] = i;
      offer.units[i] = wire::kAllUnits;
      fds.push_back(file.Get());
    }
    bad_.Send(offer, fds);
  };
  ExpectClosed();
}

TEST_F(Misbehaviour, OffersAChunkTwice) {
  OfferInstead([&] {
    const auto chunk = driver_.MakeChunk();
    UniqueFd file = driver_.Export(chunk);
    EXPECT_EQ(driver_.cuda.MemRelease(chunk), cuda::CUDA_SUCCESS);
    return file;
  });
  bad_.instead[LineType::kStored] = [&](const LineMessage& message, std::span<UniqueFd>) {
    LineMessage freed = message;
    freed.type = LineType::kFreed;
    bad_.Send(freed);
  };
  ExpectClosed();
}

TEST_F(Misbehaviour, SendsAnEmptyPacketWithAFile) {
  bad_.instead[LineType::kEvict] = [&](const LineMessage&, std::span<UniqueFd>) {
    const UniqueFd file(open("/proc/self/exe", O_RDONLY));
    SendPacket(bad_.line(), {}, file.Get());  // the second time its line is closed already
  };
  ExpectClosed();
}

TEST_F(Misbehaviour, SendsNoDescriptors) {
  bad_.instead[LineType::kEvict] = [&](const LineMessage&, std::span<UniqueFd>) {
    bad_.Send({.type = LineType::kOffer, .count = 1, .chunk = {1}, .units = {wire::kAllUnits}});
  };
  ExpectClosed();
}

TEST_F(Misbehaviour, AnswersWithoutAQuestion) {
  for (const LineType type :
       {LineType::kOffer, LineType::kFreed, LineType::kWant, LineType::kTaken, LineType::kSettled, LineType::kDropped,
        LineType::kAdoptFiled, LineType::kEvict, LineType::kReleased, LineType::kHeld, LineType::kParked}) {
    TestProgram program(0);
    mover_.Program(3, program);
    program.Send({.type = type});
    EXPECT_TRUE(mover_.Until([&] { return program.line() < 0; })) << static_cast<int>(type);
    mover_.Forget(3);
  }
  ExpectOthersWork();
}

TEST_F(Misbehaviour, NamesChunksThatAreNotThere) {
  EXPECT_EQ(mover_.Move(1, MoverType::kEvict, 2).error, 0);
  bad_.instead[LineType::kLoad] = [&](const LineMessage&, std::span<UniqueFd>) { SendWant({7}); };
  ExpectClosed(MoverType::kLoad);
}

TEST_F(Misbehaviour, WantsAChunkTwice) {
  EXPECT_EQ(mover_.Move(1, MoverType::kEvict, 2).error, 0);
  bad_.instead[LineType::kLoad] = [&](const LineMessage&, std::span<UniqueFd>) { SendWant({1000, 1000}); };
  ExpectClosed(MoverType::kLoad);
}

TEST_F(Misbehaviour, FreesOtherChunks) {
  bad_.instead[LineType::kStored] = [&](const LineMessage&, std::span<UniqueFd>) {
    bad_.Send({.type = LineType::kFreed, .count = 1, .chunk = {7}});
  };
  ExpectClosed();
}

TEST_F(Misbehaviour, AdoptsWhatItHasAlready) {
  EXPECT_EQ(mover_.Move(1, MoverType::kEvict, 2).error, 0);
  bad_.Send({.type = LineType::kAdopt, .count = 1, .chunk = {1000}});
  EXPECT_TRUE(mover_.Until([&] { return bad_.line() < 0; }));
  ExpectOthersWork();
}

TEST_F(Misbehaviour, AdoptsAfterItHasSaidThatThatWasAll) {
  bad_.Adopt();
  bad_.Adopt();
  EXPECT_TRUE(mover_.Until([&] { return bad_.line() < 0; }));
  ExpectOthersWork();
}

}  // namespace
}  // namespace tessera::mover
