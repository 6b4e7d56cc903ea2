#include "base/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/testing/temporary_folder.h"
#include "base/unique_fd.h"

namespace tessera {
namespace {

class WholeFile : public testing::Test {
 protected:
  std::string Text(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_.path() + name).rdbuf();
    return text.str();
  }
  const TemporaryFolder folder_;
};

TEST_F(WholeFile, TakesThePlaceOfTheOldOne) {
  std::ofstream(folder_.path() + "/a") << "a longer text than the new one";
  ASSERT_TRUE(ReplaceFile(folder_.path() + "/a", "new", 0600, ""));
  EXPECT_EQ(Text("/a"), "new");
  struct stat st = {};
  ASSERT_EQ(stat((folder_.path() + "/a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
}

TEST_F(WholeFile, LeavesNothingBehindWhenItCannot) {
  std::filesystem::create_directory(folder_.path() + "/a");  // no file can be renamed to it
  const auto replaced = ReplaceFile(folder_.path() + "/a", "new", 0600, "do something");
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().hint, "do something");
  EXPECT_NE(replaced.error().message.find(folder_.path() + "/a"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/a.new"));
}

TEST_F(WholeFile, APipeIsWrittenToAndStaysOne) {
  const std::string pipe = folder_.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(ReplaceFile(pipe, "new", 0600, ""));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  char text[8];
  EXPECT_EQ(read(reader.Get(), text, sizeof text), 3);
}

TEST_F(WholeFile, NamesAFolderThatIsMissing) {
  EXPECT_EQ(ReplaceFile(folder_.path() + "/missing/a", "new", 0600, "").error().code, ENOENT);
}

}  // namespace
}  // namespace tessera
