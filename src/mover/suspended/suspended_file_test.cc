// The file of a suspended program: what is written is read, and what was changed is not.
#include "mover/suspended/suspended_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "mover/suspended/suspended_fuzz.h"
#include "wire/line.h"

namespace tessera::mover {
namespace {

using Bytes = std::vector<std::byte>;

class SuspendedFileTest : public testing::Test {
 protected:
  // A chunk in which only these units have something, each its own.
  static Bytes ChunkOf(wire::Units units, std::uint8_t seed) {
    Bytes bytes(wire::kChunkBytes);
    for (std::uint32_t unit = 0; unit < wire::kUnitsPerChunk; ++unit) {
      if ((units >> unit & 1) != 0)
        std::memset(bytes.data() + unit * wire::kUnitBytes, seed + static_cast<int>(unit), wire::kUnitBytes - 1);
    }
    return bytes;
  }
  UniqueFd Again() const { return UniqueFd(dup(fd_.Get())); }
  // Two chunks, the second one empty.
  void WriteSome() {
    SuspendedHeader of = {.pid = 12, .start = 34};
    std::strcpy(of.gpu.name, "a GPU");
    auto file = SuspendedFile::Begin(Again(), of);
    file.Expect(2);
    ASSERT_TRUE(file.Append(0x7000'0000, 5, first_));
    ASSERT_TRUE(file.Append(0x8000'0000, 6, Bytes(wire::kChunkBytes)));
    EXPECT_EQ(SuspendedFile::Open(Again()).error().code, ENODATA) << "it is not finished";
    ASSERT_TRUE(file.Finish());
  }
  std::size_t Size() const {
    struct stat status{};
    EXPECT_EQ(fstat(fd_.Get(), &status), 0);
    return static_cast<std::size_t>(status.st_size);
  }
  void Flip(std::size_t at) {
    char byte = 0;
    EXPECT_EQ(pread(fd_.Get(), &byte, 1, static_cast<off_t>(at)), 1);
    byte ^= 4;
    EXPECT_EQ(pwrite(fd_.Get(), &byte, 1, static_cast<off_t>(at)), 1);
  }

  const Bytes first_ = ChunkOf(0b1011, 1);
  UniqueFd fd_{memfd_create("suspended", MFD_CLOEXEC)};
};

TEST_F(SuspendedFileTest, WhatIsWrittenIsReadAndOnlyUnitsInUseTakeSpace) {
  WriteSome();
  EXPECT_EQ(Size(), DataBegin(2) + 3 * wire::kUnitBytes);
  const auto file = SuspendedFile::Open(Again());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->Header().pid, 12u);
  EXPECT_EQ(file->Header().start, 34u);
  EXPECT_STREQ(file->Header().gpu.name, "a GPU");
  ASSERT_EQ(file->Table().size(), 2u);
  EXPECT_EQ(file->Table()[0].address, 0x7000'0000u);
  EXPECT_EQ(file->Table()[0].key, 5u);
  EXPECT_EQ(file->Table()[0].units, 0b1011u);
  Bytes read(wire::kChunkBytes, std::byte{9});
  ASSERT_TRUE(file->Read(file->Table()[0], read));
  EXPECT_EQ(read, first_);
  ASSERT_TRUE(file->Read(file->Table()[1], read));
  EXPECT_EQ(read, Bytes(wire::kChunkBytes));
}

TEST_F(SuspendedFileTest, AProgramWithNothingToSaveHasAFile) {
  auto file = SuspendedFile::Begin(Again(), {});
  file.Expect(0);
  ASSERT_TRUE(file.Finish());
  EXPECT_TRUE(SuspendedFile::Open(Again())->Table().empty());
}

TEST_F(SuspendedFileTest, AnEmptiedFileIsNone) {
  WriteSome();
  auto file = SuspendedFile::Open(Again());
  ASSERT_TRUE(file && file->Clear());
  EXPECT_EQ(SuspendedFile::Open(Again()).error().code, ENODATA);
}

TEST_F(SuspendedFileTest, EachChangedByteOfTheHeadIsFound) {
  WriteSome();
  for (std::size_t at = 0; at < sizeof(SuspendedHeader) + 2 * sizeof(SuspendedChunk); ++at) {
    Flip(at);
    const auto file = SuspendedFile::Open(Again());
    ASSERT_FALSE(file) << at;
    EXPECT_EQ(file.error().code, EBADMSG) << at;
    Flip(at);
  }
  EXPECT_TRUE(SuspendedFile::Open(Again()));
}

TEST_F(SuspendedFileTest, AChangedChunkIsFound) {
  WriteSome();
  Bytes read(wire::kChunkBytes);
  for (const std::size_t at : {DataBegin(2), DataBegin(2) + 5'000'000, Size() - 1}) {
    Flip(at);
    const auto file = SuspendedFile::Open(Again());
    ASSERT_TRUE(file);
    EXPECT_EQ(file->Read(file->Table()[0], read).error().code, EBADMSG) << at;
    EXPECT_TRUE(file->Read(file->Table()[1], read)) << "another chunk";
    Flip(at);
  }
}

TEST_F(SuspendedFileTest, AFileOfAnotherLengthIsRefused) {
  WriteSome();
  const auto size = static_cast<off_t>(Size());
  for (const off_t length : {off_t{1}, off_t{100}, off_t{300}, size - 1, size + 1}) {
    ASSERT_EQ(ftruncate(fd_.Get(), length), 0);
    const auto file = SuspendedFile::Open(Again());
    ASSERT_FALSE(file) << length;
    EXPECT_EQ(file.error().code, EBADMSG) << length;
  }
}

TEST_F(SuspendedFileTest, AFullDiskIsAnError) {
  UniqueFd full(memfd_create("full", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fcntl(full.Get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  auto file = SuspendedFile::Begin(std::move(full), {});
  file.Expect(1);
  const auto wrote = file.Append(1, 2, first_);
  ASSERT_FALSE(wrote);
  EXPECT_NE(wrote.error().message.find("suspended program"), std::string::npos);
}

// ---- the same as the fuzzer, from a fixed seed ----

TEST_F(SuspendedFileTest, FilesThatWereChangedAnywhereDoNoHarm) {
  WriteSome();
  const std::size_t head = sizeof(SuspendedHeader) + 2 * sizeof(SuspendedChunk);
  std::vector<std::uint8_t> whole(DataBegin(2) + 64);
  ASSERT_EQ(pread(fd_.Get(), whole.data(), whole.size(), 0), static_cast<ssize_t>(whole.size()));
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    auto bytes = whole;
    for (int change = 0; change < 1 + round % 4; ++change) {
      const std::size_t at = random() % head;
      bytes[at] = static_cast<std::uint8_t>(random() % 3 == 0 ? 0xff : random());
    }
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    for (const bool mended : {false, true}) ASSERT_EQ(RunSuspendedFile(bytes, mended), "") << "round " << round;
  }
}

}  // namespace
}  // namespace tessera::mover
