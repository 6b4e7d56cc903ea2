// A pool with what belongs to it, for tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "mover/pool/pool_growth.h"
#include "mover/pool/slot_claims.h"

namespace tessera::mover {

inline UniqueFd TableFile(std::uint64_t entries) {
  UniqueFd file(memfd_create("table", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(file.Get(), static_cast<off_t>(entries * wire::kTableEntryBytes)), 0);
  return file;
}

struct TestPool {
  explicit TestPool(UniqueFd file) : table(std::move(*KeyTable::Open(std::move(file)))) {}
  TestPool(const TestPool&) = delete;

  // Slots that were made and freed.
  struct Work {
    int made = 0, freed = 0;
    bool operator==(const Work&) const = default;
  };
  // Does what the growth says until it says nothing more.
  Work Obey(const Demand& demand = {}) {
    return DoAll([&] { return growth.Next(demand); });
  }
  // Likewise where there is nothing else to do, with programs of these domains.
  Work Prepare(const std::set<Domain>& present) {
    return DoAll([&] { return growth.Prepare(present); });
  }
  template <typename Next>
  Work DoAll(Next next) {
    using Kind = PoolGrowth::Job::Kind;
    Work work;
    while (true) {
      const PoolGrowth::Job job = next();
      if (job.kind == Kind::kNothing || work.made + work.freed > 100) return work;
      if (job.kind == Kind::kFree) {
        ++work.freed;
      } else {
        ++work.made;
        slots.Admit(slots.EntryOf(slots.Add({})).memory);
        growth.Ended();
      }
    }
  }

  KeyTable table;
  Pool slots{table};
  SlotClaims claims{table, slots};
  PoolGrowth growth{slots, table.size()};
};

}  // namespace tessera::mover
