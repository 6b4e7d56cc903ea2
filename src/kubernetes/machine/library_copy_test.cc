#include "kubernetes/machine/library_copy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/testing/temporary_folder.h"

namespace tessera::kubernetes {
namespace {

namespace fs = std::filesystem;

class LibraryCopyTest : public testing::Test {
 protected:
  void SetUp() override {
    Put("ours/lib/tessera/libcuda.so.1", "shim");
    Put("ours/lib/tessera/deps/libz.so.1", "z");
    fs::create_symlink("libcuda.so.1", root_.path() + "/ours/lib/tessera/libcuda.so");
    fs::create_directories(copies_);
  }

  void Put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_.path() + "/" + path).parent_path());
    std::ofstream(root_.path() + "/" + path) << text;
  }
  Result<Installation> Copy() { return CopyLibraries({root_.path() + "/ours"}, copies_); }
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::set<std::string> Copies() const {
    std::set<std::string> found;
    for (const auto& each : fs::directory_iterator(copies_)) found.insert(each.path());
    return found;
  }

  const TemporaryFolder root_;
  const std::string copies_ = root_.path() + "/copies";
};

TEST_F(LibraryCopyTest, HasAllFilesAndLinks) {
  const auto copy = Copy();
  ASSERT_TRUE(copy) << copy.error().Text();
  EXPECT_EQ(fs::path(copy->prefix).parent_path(), copies_);
  EXPECT_EQ(TextOf(copy->Shim()), "shim");
  EXPECT_EQ(TextOf(copy->Libraries() + "/deps/libz.so.1"), "z");
  EXPECT_EQ(fs::read_symlink(copy->Libraries() + "/libcuda.so"), "libcuda.so.1");
  EXPECT_EQ(Copies(), std::set{copy->prefix});
}

TEST_F(LibraryCopyTest, IsMadeOnceForEachContent) {
  Put("copies/.new/lib/tessera/libcuda.so.1", "half");  // of a driver that was killed
  const auto first = Copy();
  ASSERT_TRUE(first);
  EXPECT_FALSE(fs::exists(copies_ + "/.new"));
  std::ofstream(first->prefix + "/mark") << "the same";
  EXPECT_EQ(Copy()->prefix, first->prefix);
  EXPECT_TRUE(fs::exists(first->prefix + "/mark"));
  Put("ours/lib/tessera/deps/libz.so.1", "newer");
  const auto second = Copy();
  ASSERT_TRUE(second);
  EXPECT_NE(second->prefix, first->prefix);
  EXPECT_EQ(TextOf(first->Libraries() + "/deps/libz.so.1"), "z");
}

TEST_F(LibraryCopyTest, FailsWithAWordOfWhatToDo) {
  EXPECT_EQ(CopyLibraries({root_.path() + "/nothing"}, copies_).error().code, EINVAL);
  fs::remove_all(copies_);
  Put("copies", "a file");
  const auto failed = Copy();
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().hint.find("start the driver again"), std::string::npos) << failed.error().Text();
}

TEST_F(LibraryCopyTest, StaysWhileContainersHaveIt) {
  const auto old = Copy();
  Put("ours/lib/tessera/libcuda.so.1", "second");
  const auto used = Copy();
  Put("ours/lib/tessera/libcuda.so.1", "third");
  const auto now = Copy();
  ASSERT_TRUE(old && used && now);
  Put("cdi/claim.json", R"({"hostPath": ")" + used->Libraries() + R"("})");
  const std::string cdi = root_.path() + "/cdi";
  EXPECT_TRUE(IsCopyInUse(used->prefix, cdi));
  EXPECT_FALSE(IsCopyInUse(old->prefix, cdi));
  RemoveOldCopies(copies_, *now, [&](const std::string& copy) { return IsCopyInUse(copy, cdi); });
  EXPECT_EQ(Copies(), (std::set{used->prefix, now->prefix}));
}

}  // namespace
}  // namespace tessera::kubernetes
