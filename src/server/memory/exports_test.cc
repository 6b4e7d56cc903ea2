#include "server/memory/exports.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/size.h"

namespace tessera::server {
namespace {

constexpr uid_t kUser = 1000, kOtherUser = 1001;
constexpr wire::ExportKey kKey{{1, 2, 3}};

std::vector<UniqueFd> Files(std::size_t count) {
  std::vector<UniqueFd> files;
  while (files.size() < count) files.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
  return files;
}

wire::Export Part(std::uint32_t chunks, std::uint32_t first = 0, wire::ExportKey key = kKey) {
  return {.key = key,
          .bytes = chunks * 32 * kMiB - 5,
          .offset = 5,
          .chunk_bytes = 32 * kMiB,
          .chunks = chunks,
          .first = first};
}

class ExportsTest : public testing::Test {
 protected:
  int Add(const wire::Export& part, std::size_t count, std::uint64_t session = 1, uid_t uid = kUser) {
    auto files = Files(count);
    const auto added = exports.Add(session, uid, 0, part, files);
    return added ? 0 : added.error().code;
  }
  int Find(uid_t uid = kUser, const wire::ExportKey& key = kKey) {
    const auto found = exports.Find(key, uid);
    return found ? 0 : found.error().code;
  }

  Exports exports{100};
};

TEST_F(ExportsTest, MemoryIsThereWhenAllItsPartsHaveCome) {
  EXPECT_EQ(Find(), ENOENT);
  EXPECT_EQ(Add(Part(20), 16), 0);
  EXPECT_EQ(Find(), ENOENT);
  EXPECT_EQ(Add(Part(20, 16), 4), 0);
  ASSERT_EQ(Find(), 0);
  const Exports::Entry& entry = **exports.Find(kKey, kUser);
  EXPECT_EQ(entry.chunks.size(), 20u);
  EXPECT_EQ(entry.terms.bytes, 640 * kMiB - 5);
  EXPECT_EQ(entry.terms.offset, 5u);
  EXPECT_EQ(exports.BytesOf(1, 0), 640 * kMiB - 5);
  EXPECT_EQ(exports.BytesOf(1, 1), 0u);
  EXPECT_EQ(exports.BytesOf(2, 0), 0u);
}

TEST_F(ExportsTest, ItIsForProgramsOfItsUserOnly) {
  ASSERT_EQ(Add(Part(1), 1), 0);
  EXPECT_EQ(Find(kOtherUser), EACCES);
  EXPECT_EQ(Find(0), EACCES);
}

TEST_F(ExportsTest, ItGoesWithTheExportersWordOrTheExporter) {
  const wire::ExportKey second{{9}};
  ASSERT_EQ(Add(Part(1), 1), 0);
  ASSERT_EQ(Add(Part(2, 0, second), 2), 0);
  exports.Remove(2, kKey);  // not its own
  EXPECT_EQ(Find(), 0);
  exports.Remove(1, kKey);
  EXPECT_EQ(Find(), ENOENT);
  EXPECT_EQ(exports.Descriptors(), 2u);
  EXPECT_EQ(exports.BytesOf(1, 0), 64 * kMiB - 5);
  exports.RemoveAllOf(2);
  EXPECT_EQ(Find(kUser, second), 0);
  exports.RemoveAllOf(1);
  EXPECT_EQ(Find(kUser, second), ENOENT);
  EXPECT_EQ(exports.Descriptors(), 0u);
  EXPECT_EQ(exports.BytesOf(1, 0), 0u);
}

TEST_F(ExportsTest, NobodyTakesAnothersKey) {
  ASSERT_EQ(Add(Part(1), 1), 0);
  EXPECT_EQ(Add(Part(1), 1, 2), EEXIST);
  EXPECT_EQ(Add(Part(2, 1), 1, 2), EEXIST);
  EXPECT_EQ(Find(), 0);
}

TEST_F(ExportsTest, WhatCannotBeIsRefusedAndNothingStays) {
  auto none = Part(0), empty = Part(1), beyond = Part(1), far = Part(1), huge = Part(1);
  empty.bytes = 0;
  beyond.bytes = 32 * kMiB;
  far.offset = 32 * kMiB;
  huge.chunk_bytes = huge.bytes = UINT64_MAX;
  for (const auto& part : {none, empty, beyond, far, huge}) EXPECT_EQ(Add(part, 1), EINVAL);
  EXPECT_EQ(Add(Part(2), 0), EINVAL);  // its descriptors were lost
  EXPECT_EQ(Add(Part(2), 1), EINVAL);  // one of them was
  EXPECT_EQ(Add(Part(2), 3), EINVAL);
  EXPECT_EQ(Add(Part(20), 15), EINVAL);
  EXPECT_EQ(Add(Part(20, 16), 4), EINVAL);  // the first ones are missing
  ASSERT_EQ(Add(Part(40), 16), 0);
  EXPECT_EQ(Add(Part(40, 32), 8), EINVAL);   // those between are
  EXPECT_EQ(Add(Part(40, 16), 16), EINVAL);  // so all has to begin anew
  ASSERT_EQ(Add(Part(40), 16), 0);
  EXPECT_EQ(Add(Part(41, 16), 16), EINVAL);  // of another size than it was
  EXPECT_EQ(exports.Descriptors(), 0u);
}

TEST_F(ExportsTest, ThereAreSoManyDescriptorsAndHalfOfThemForAUser) {
  for (std::uint8_t n = 0; n < 3; ++n) ASSERT_EQ(Add(Part(16, 0, {{n}}), 16, n), 0);
  EXPECT_EQ(Add(Part(3, 0, {{3}}), 3), ENOSPC);
  EXPECT_EQ(Add(Part(2, 0, {{3}}), 2), 0);
  EXPECT_EQ(Add(Part(1, 0, {{4}}), 1), ENOSPC);
  for (std::uint8_t n = 5; n < 8; ++n) ASSERT_EQ(Add(Part(16, 0, {{n}}), 16, n, kOtherUser), 0);
  ASSERT_EQ(Add(Part(2, 0, {{8}}), 2, 8, kOtherUser), 0);
  EXPECT_EQ(Add(Part(1, 0, {{9}}), 1, 9, 1002), ENOSPC);
  EXPECT_EQ(exports.Descriptors(), 100u);
  exports.RemoveAllOf(2);
  EXPECT_EQ(Add(Part(16, 0, {{4}}), 16), 0);
}

}  // namespace
}  // namespace tessera::server
