#include "guard/request/memory_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "base/testing/same_cases.h"

namespace tessera::guard {
namespace {

using Changes = MemoryObjects::Changes;
using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;

// Bytes that the process pays for.
std::uint64_t Held(const MemoryObjects& objects, pid_t process) {
  std::uint64_t held = 0;
  for (const auto& payment : objects.Payments()) held += payment.process == process ? payment.bytes : 0;
  return held;
}

class MemoryObjectsTest : public testing::Test {
 protected:
  MemoryObjectsTest() {
    objects_.SetClient(10, 1);
    objects_.SetClient(20, 2);
  }
  MemoryObjects objects_;
};

auto GivesBack(pid_t pid, std::uint64_t bytes) { return FieldsAre(pid, testing::_, bytes, false, testing::_); }
auto Charges(pid_t pid, std::uint64_t bytes) { return FieldsAre(pid, testing::_, bytes, true, testing::_); }

TEST_F(MemoryObjectsTest, FreeGivesBack) {
  EXPECT_THAT(objects_.Add(10, 80, 100, 5), IsEmpty());
  EXPECT_EQ(Held(objects_, 1), 5u);
  EXPECT_THAT(objects_.Free(10, 100), ElementsAre(GivesBack(1, 5)));
  EXPECT_EQ(Held(objects_, 1), 0u);
  EXPECT_THAT(objects_.Free(10, 100), IsEmpty());
}

TEST_F(MemoryObjectsTest, FreeOfAParentFreesItsChildren) {
  objects_.Add(10, 10, 80, 0);
  objects_.Add(10, 80, 81, 0);
  objects_.Add(10, 81, 100, 5);
  objects_.Add(10, 80, 101, 7);
  objects_.Add(10, 90, 102, 9);  // under something that was not told
  EXPECT_TRUE(objects_.Knows(10, 90));
  EXPECT_THAT(objects_.Free(10, 80), testing::UnorderedElementsAre(GivesBack(1, 5), GivesBack(1, 7)));
  EXPECT_THAT(objects_.Free(10, 90), ElementsAre(GivesBack(1, 9)));
  EXPECT_EQ(objects_.Objects(), 0u);
}

TEST_F(MemoryObjectsTest, TheSecondHandleKeepsIt) {
  objects_.Add(10, 80, 100, 5);
  EXPECT_THAT(objects_.Dup(10, 80, 101, 10, 100), IsEmpty());
  EXPECT_THAT(objects_.Free(10, 100), IsEmpty());
  EXPECT_EQ(Held(objects_, 1), 5u);
  EXPECT_THAT(objects_.Free(10, 101), ElementsAre(GivesBack(1, 5)));
}

TEST_F(MemoryObjectsTest, TheNextOneWithAHandlePays) {
  objects_.Add(10, 80, 100, 5);
  objects_.Dup(20, 80, 200, 10, 100);
  EXPECT_EQ(Held(objects_, 2), 0u);
  EXPECT_THAT(objects_.Free(10, 10), ElementsAre(GivesBack(1, 5), Charges(2, 5)));
  EXPECT_EQ(Held(objects_, 2), 5u);
  EXPECT_THAT(objects_.Free(20, 20), ElementsAre(GivesBack(2, 5)));
}

TEST_F(MemoryObjectsTest, MemoryIsOfTheDeviceThatItIsUnder) {
  objects_.Add(10, 10, 80, 0, 3);
  objects_.Add(10, 80, 81, 0);  // a group on that device
  objects_.Add(10, 81, 100, 5);
  objects_.Add(10, 10, 90, 0, 0);
  objects_.Add(10, 90, 101, 7);
  objects_.Add(10, 99, 102, 9);  // under something that was not told
  EXPECT_EQ(objects_.DeviceOf(10, 81), 3u);
  EXPECT_EQ(objects_.DeviceOf(10, 99), MemoryObjects::kUnknownDevice);
  // A second handle under another device does not move it.
  objects_.Dup(20, 20, 200, 10, 100);
  const auto changes = objects_.Free(10, 10);
  EXPECT_THAT(changes, testing::UnorderedElementsAre(
                           FieldsAre(1, 3u, 5u, false, testing::_), FieldsAre(2, 3u, 5u, true, testing::_),
                           FieldsAre(1, 0u, 7u, false, testing::_),
                           FieldsAre(1, MemoryObjects::kUnknownDevice, 9u, false, testing::_)));
}

TEST_F(MemoryObjectsTest, NobodyPaysForWhatWasNotCharged) {
  objects_.Add(10, 80, 100, 5);
  objects_.Dup(20, 80, 200, 10, 100);
  const Changes changes = objects_.Free(10, 100);
  ASSERT_EQ(changes.size(), 2u);
  objects_.Unpaid(changes[1].memory);
  EXPECT_EQ(Held(objects_, 2), 0u);
  EXPECT_THAT(objects_.Free(20, 200), IsEmpty());
  EXPECT_EQ(objects_.Memories(), 0u);
}

TEST_F(MemoryObjectsTest, AClientMoves) {
  objects_.Add(10, 80, 100, 5);
  EXPECT_THAT(objects_.SetClient(10, 3), ElementsAre(GivesBack(1, 5), Charges(3, 5)));
  EXPECT_EQ(objects_.ProcessOf(10), 3);
  EXPECT_THAT(objects_.ClientsOf(1), IsEmpty());
}

TEST_F(MemoryObjectsTest, NonsenseIsIgnored) {
  EXPECT_THAT(objects_.Add(99, 80, 100, 5), IsEmpty());
  EXPECT_THAT(objects_.Dup(10, 80, 100, 20, 7), IsEmpty());
  EXPECT_THAT(objects_.Add(10, 10, 10, 5), IsEmpty());
  EXPECT_THAT(objects_.Add(10, 7, 7, 5), IsEmpty()) << "its own parent";
  EXPECT_THAT(objects_.Free(10, 7), ElementsAre(GivesBack(1, 5)));
  EXPECT_THAT(objects_.Add(10, 8, 9, 0), IsEmpty());
  EXPECT_THAT(objects_.Add(10, 9, 8, 0), IsEmpty()) << "a ring";
  EXPECT_THAT(objects_.Free(10, 8), IsEmpty());
  EXPECT_EQ(objects_.Objects(), 0u);
}

TEST_F(MemoryObjectsTest, DupOverAnAncestorOfItsSource) {
  objects_.Add(10, 10, 80, 0);
  objects_.Add(10, 80, 100, 5);
  EXPECT_THAT(objects_.Dup(10, 10, 80, 10, 100), ElementsAre(GivesBack(1, 5)));
  EXPECT_EQ(objects_.Memories(), 0u);
}

TEST_F(MemoryObjectsTest, IsBounded) {
  for (std::uint64_t i = 0; i < MemoryObjects::kMostObjectsPerProcess + 10; ++i) objects_.Add(10, 80, 1000 + i, 1);
  EXPECT_FALSE(objects_.HasRoom(10));
  EXPECT_TRUE(objects_.HasRoom(20));
  EXPECT_EQ(objects_.Objects(), MemoryObjects::kMostObjectsPerProcess);
  EXPECT_EQ(Held(objects_, 1), MemoryObjects::kMostObjectsPerProcess);
  objects_.Free(10, 10);
  EXPECT_EQ(Held(objects_, 1), 0u);
}

// ---- against a model that looks at everything every time ----

class Model {
 public:
  void SetClient(std::uint32_t client, pid_t process) {
    clients_[client] = process;
    Settle();
  }
  void Add(std::uint32_t client, std::uint64_t parent, std::uint64_t object, std::uint64_t bytes) {
    if (!clients_.contains(client) || client == object) return;
    Free(client, object);
    std::size_t memory = 0;
    if (bytes > 0) {
      memory = ++last_;
      memories_[memory] = {bytes, clients_[client]};
    }
    objects_.push_back({client, parent, object, memory});
  }
  void Dup(std::uint32_t client, std::uint64_t parent, std::uint64_t object, std::uint32_t from, std::uint64_t source) {
    if (!clients_.contains(client) || client == object || !MemoryOf(from, source)) return;
    Free(client, object);
    if (const std::size_t memory = MemoryOf(from, source)) objects_.push_back({client, parent, object, memory});
  }
  void Free(std::uint32_t client, std::uint64_t object) {
    std::vector<std::uint64_t> doomed{object};
    if (client == object) {
      for (const Object& other : objects_) {
        if (other.client == client) doomed.push_back(other.object);
      }
    }
    for (std::size_t i = 0; i < doomed.size(); ++i) {
      std::erase_if(objects_, [&](const Object& o) { return o.client == client && o.object == doomed[i]; });
      for (const Object& other : objects_) {
        if (other.client == client && other.parent == doomed[i]) doomed.push_back(other.object);
      }
    }
    if (client == object) clients_.erase(client);
    Settle();
  }
  std::uint64_t Held(pid_t process) const {
    std::uint64_t sum = 0;
    for (const auto& [id, memory] : memories_) {
      if (memory.payer == process) sum += memory.bytes;
    }
    return sum;
  }
  std::size_t Objects() const { return objects_.size(); }

 private:
  struct Object {
    std::uint32_t client;
    std::uint64_t parent, object;
    std::size_t memory;
  };
  struct Memory {
    std::uint64_t bytes = 0;
    pid_t payer = 0;
  };
  std::size_t MemoryOf(std::uint32_t client, std::uint64_t object) const {
    for (const Object& o : objects_) {
      if (o.client == client && o.object == object) return o.memory;
    }
    return 0;
  }
  void Settle() {
    for (auto at = memories_.begin(); at != memories_.end();) {
      std::vector<pid_t> holders;
      for (const Object& o : objects_) {
        if (o.memory == at->first) holders.push_back(clients_.at(o.client));
      }
      if (holders.empty()) {
        at = memories_.erase(at);
        continue;
      }
      if (std::find(holders.begin(), holders.end(), at->second.payer) == holders.end()) at->second.payer = holders[0];
      ++at;
    }
  }
  std::vector<Object> objects_;
  std::map<std::size_t, Memory> memories_;
  std::map<std::uint32_t, pid_t> clients_;
  std::size_t last_ = 0;
};

RC_GTEST_PROP(MemoryObjectsProperty, AgreesWithTheModel, ()) {
  MemoryObjects objects;
  Model model;
  std::map<pid_t, std::uint64_t> ledger;  // what the changes say, and what was charged before
  const auto apply = [&](const Changes& changes) {
    for (const auto& change : changes) {
      auto& held = ledger[change.process];
      if (!change.charge) RC_ASSERT(held >= change.bytes);
      held = change.charge ? held + change.bytes : held - change.bytes;
    }
  };
  const auto client = [] { return *rc::gen::inRange<std::uint32_t>(1, 4); };
  const auto object = [] { return *rc::gen::inRange<std::uint64_t>(1, 12); };
  const int steps = *rc::gen::inRange(1, 120);
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t c = client();
    const std::uint64_t o = object(), parent = object();
    switch (*rc::gen::inRange(0, 8)) {
      case 0: {
        const pid_t process = *rc::gen::inRange(100, 103);
        apply(objects.SetClient(c, process));
        model.SetClient(c, process);
        break;
      }
      case 1:
      case 2:
        apply(objects.Free(c, o));
        model.Free(c, o);
        break;
      case 3:
      case 4: {
        const std::uint32_t from = client();
        const std::uint64_t source = object();
        apply(objects.Dup(c, parent, o, from, source));
        model.Dup(c, parent, o, from, source);
        break;
      }
      default: {
        const std::uint64_t bytes = *rc::gen::inRange<std::uint64_t>(0, 4);
        if (const auto process = objects.ProcessOf(c); process && o != c) ledger[*process] += bytes;
        apply(objects.Add(c, parent, o, bytes));
        model.Add(c, parent, o, bytes);
      }
    }
    RC_ASSERT(objects.Objects() == model.Objects());
    for (const pid_t process : {100, 101, 102}) {
      RC_ASSERT(Held(objects, process) == model.Held(process));
      RC_ASSERT(Held(objects, process) == ledger[process]);
    }
  }
  for (const std::uint32_t c : {1u, 2u, 3u}) apply(objects.Free(c, c));
  RC_ASSERT(objects.Objects() == 0u);
  RC_ASSERT(objects.Memories() == 0u);
  for (const auto& [process, held] : ledger) RC_ASSERT(held == 0u);
}

}  // namespace
}  // namespace tessera::guard
