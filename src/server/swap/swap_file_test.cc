#include "server/swap/swap_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/size.h"
#include "base/testing/temporary_folder.h"
#include "server/swap/chunks.h"
#include "wire/swap_table.h"

namespace tessera::server {
namespace {

constexpr std::uint64_t kChunk = wire::kChunkBytes;

class SwapFileTest : public testing::Test {
 protected:
  const TemporaryFolder folder_;
};

TEST_F(SwapFileTest, IsReservedAndHasNoName) {
  const auto made = MakeSwapFile(folder_.path() + "/swap", 3 * kChunk + 5);
  ASSERT_TRUE(made) << made.error().Text();
  EXPECT_EQ(made->bytes, 3 * kChunk);
  struct stat file{}, table{};
  ASSERT_EQ(fstat(made->file.Get(), &file), 0);
  ASSERT_EQ(fstat(made->table.Get(), &table), 0);
  EXPECT_EQ(file.st_size, static_cast<off_t>(3 * kChunk));
  EXPECT_GE(static_cast<std::uint64_t>(file.st_blocks) * 512, 3 * kChunk);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_EQ(file.st_nlink, 0u);
  EXPECT_EQ(table.st_size, static_cast<off_t>(3 * wire::kTableEntryBytes));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_NE(fcntl(made->file.Get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(SwapFileTest, AFileOfThatNameIsLeftAlone) {
  std::ofstream(folder_.path() + "/swap") << "mine";
  const auto made = MakeSwapFile(folder_.path() + "/swap", kChunk);
  EXPECT_TRUE(made || made.error().code == EEXIST);
  std::string text;
  std::ifstream(folder_.path() + "/swap") >> text;
  EXPECT_EQ(text, "mine");
}

TEST_F(SwapFileTest, WhatDoesNotFitOnTheDiskIsRefusedAndTakesNothing) {
  const auto made = MakeSwapFile(folder_.path() + "/swap", 1000 * 1024 * kGiB);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ENOSPC);
  EXPECT_EQ(made.error().hint, "lower swap.file_size");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SwapFileTest, AFolderThatIsNotThereIsNamed) {
  const auto made = MakeSwapFile(folder_.path() + "/none/swap", kChunk);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ENOENT);
  EXPECT_NE(made.error().message.find("/none/swap"), std::string::npos);
}

}  // namespace
}  // namespace tessera::server
