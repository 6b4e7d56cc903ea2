#include "base/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tessera {
namespace {

class WholeFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "whole_file_XXXXXX";
    folder_ = mkdtemp(folder.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Text(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ + name).rdbuf();
    return text.str();
  }
  std::string folder_;
};

TEST_F(WholeFile, TakesThePlaceOfTheOldOne) {
  std::ofstream(folder_ + "/a") << "a longer text than the new one";
  ASSERT_TRUE(ReplaceFile(folder_ + "/a", "new", 0600, ""));
  EXPECT_EQ(Text("/a"), "new");
  struct stat st = {};
  ASSERT_EQ(stat((folder_ + "/a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
}

TEST_F(WholeFile, LeavesNothingBehindWhenItCannot) {
  std::filesystem::create_directory(folder_ + "/a");  // no file can be renamed to it
  const auto replaced = ReplaceFile(folder_ + "/a", "new", 0600, "do something");
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().hint, "do something");
  EXPECT_NE(replaced.error().message.find(folder_ + "/a"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a.new"));
}

TEST_F(WholeFile, NamesAFolderThatIsMissing) {
  EXPECT_EQ(ReplaceFile(folder_ + "/missing/a", "new", 0600, "").error().code, ENOENT);
}

}  // namespace
}  // namespace tessera
