#include "guard/watch/watch_memory.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace tessera::guard {
namespace {

constexpr std::uint32_t kClient = 0xc1d00001, kOther = 0xc1d00002, kDevice = 0x5c000001;

WatchedMemory::Size Piece(std::uint64_t bytes) { return std::make_shared<const std::uint64_t>(bytes); }

TEST(WatchedMemory, CountsWhatIsThere) {
  WatchedMemory memory;
  EXPECT_TRUE(memory.Add(kClient, kDevice, 0x10, Piece(100)));
  EXPECT_TRUE(memory.Add(kClient, kDevice, 0x11, Piece(20)));
  EXPECT_EQ(memory.Bytes(), 120);
  memory.Free(kClient, 0x10);
  EXPECT_EQ(memory.Bytes(), 20);
  memory.Free(kClient, 0x10);
  memory.Free(kOther, 0x11);
  EXPECT_EQ(memory.Bytes(), 20);
}

TEST(WatchedMemory, AParentTakesItsMemoryAlong) {
  WatchedMemory memory;
  memory.Add(kClient, kDevice, 0x10, Piece(100));
  memory.Add(kClient, kDevice, 0x11, Piece(20));
  memory.Add(kClient, kDevice + 1, 0x12, Piece(3));
  memory.Add(kOther, kDevice, 0x10, Piece(4000));
  memory.Free(kClient, kDevice);
  EXPECT_EQ(memory.Bytes(), 4003);
}

TEST(WatchedMemory, AClientTakesEverythingAlong) {
  WatchedMemory memory;
  memory.Add(kClient, kDevice, 0x10, Piece(100));
  memory.Add(kClient, kDevice + 1, 0xffffffff, Piece(20));
  memory.Add(kOther, kDevice, 0x10, Piece(3));
  memory.Free(kClient, kClient);
  EXPECT_EQ(memory.Bytes(), 3);
  EXPECT_EQ(memory.Objects(), 1);
}

TEST(WatchedMemory, AHandleThatIsGivenAgainReplaces) {
  WatchedMemory memory;
  memory.Add(kClient, kDevice, 0x10, Piece(100));
  memory.Add(kClient, kDevice + 1, 0x10, Piece(7));
  EXPECT_EQ(memory.Bytes(), 7);
  memory.Free(kClient, kDevice);
  EXPECT_EQ(memory.Bytes(), 7);
  memory.Free(kClient, kDevice + 1);
  EXPECT_EQ(memory.Bytes(), 0);
}

TEST(WatchedMemory, APieceWithTwoHandlesCountsOnceUntilTheLastIsFreed) {
  WatchedMemory memory;
  memory.Add(kClient, kDevice, 0x10, Piece(100));
  memory.Add(kOther, kDevice, 0x20, memory.Find(kClient, 0x10));
  EXPECT_EQ(memory.Bytes(), 100);
  memory.Free(kClient, kClient);
  EXPECT_EQ(memory.Bytes(), 100);
  memory.Free(kOther, 0x20);
  EXPECT_EQ(memory.Bytes(), 0);
}

TEST(WatchedMemory, IsBounded) {
  WatchedMemory memory;
  const auto piece = Piece(1);
  for (std::uint32_t i = 0; i < WatchedMemory::kMostObjects; ++i)
    ASSERT_TRUE(memory.Add(kClient, kDevice, i + 1, piece));
  EXPECT_FALSE(memory.Add(kOther, kDevice, 1, Piece(5)));
  EXPECT_TRUE(memory.Add(kClient, kDevice, 1, Piece(5)));  // replaces
  EXPECT_EQ(memory.Objects(), WatchedMemory::kMostObjects);
  EXPECT_EQ(memory.Bytes(), 6);
}

// The same by looking through a list.
class Naive {
 public:
  struct Object {
    std::uint32_t client, parent, object;
    WatchedMemory::Size size;
  };
  void Add(const Object& object) {
    std::erase_if(objects_, [&](const Object& o) { return o.client == object.client && o.object == object.object; });
    objects_.push_back(object);
  }
  void Free(std::uint32_t client, std::uint32_t object) {
    std::erase_if(objects_, [&](const Object& o) {
      return o.client == client && (client == object || o.object == object || o.parent == object);
    });
  }
  std::uint64_t Bytes() const {
    std::vector<WatchedMemory::Size> pieces;
    for (const Object& o : objects_) pieces.push_back(o.size);
    std::ranges::sort(pieces);
    const auto twice = std::ranges::unique(pieces);
    pieces.erase(twice.begin(), twice.end());
    std::uint64_t sum = 0;
    for (const auto& piece : pieces) sum += *piece;
    return sum;
  }
  std::size_t Objects() const { return objects_.size(); }

 private:
  std::vector<Object> objects_;
};

RC_GTEST_PROP(WatchedMemoryProperty, IsWhatAListWouldBe, ()) {
  WatchedMemory memory;
  Naive naive;
  // Few handles, so that clients, parents and objects meet.
  const auto handle = rc::gen::inRange<std::uint32_t>(1, 6);
  const auto steps = *rc::gen::inRange(0, 60);
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t client = *handle, parent = *handle, object = *handle;
    switch (*rc::gen::inRange(0, 3)) {
      case 0: {
        const auto piece = Piece(*rc::gen::inRange<std::uint64_t>(0, 100));
        memory.Add(client, parent, object, piece);
        naive.Add({client, parent, object, piece});
        break;
      }
      case 1: {
        const auto piece = memory.Find(*handle, *handle);
        if (piece == nullptr) break;
        memory.Add(client, parent, object, piece);
        naive.Add({client, parent, object, piece});
        break;
      }
      default:
        memory.Free(client, object);
        naive.Free(client, object);
    }
    RC_ASSERT(memory.Bytes() == naive.Bytes());
    RC_ASSERT(memory.Objects() == naive.Objects());
  }
}

}  // namespace
}  // namespace tessera::guard
