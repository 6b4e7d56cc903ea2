#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tessera {

// A folder of a test's own, removed at the end with all that is in it. Tests of one program run at the same time, each
// in a process of its own: a file of a fixed name would be shared by them.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(testing::TempDir() + "tessera_test_XXXXXX") {
    if (!mkdtemp(path_.data())) ADD_FAILURE() << "no folder " << path_ << " can be made";
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    // More than once: a program that ends meanwhile may take its file away itself, which stops a removal.
    std::error_code failed;
    for (int tries = 0; tries < 100 && std::filesystem::exists(path_, failed); ++tries)
      std::filesystem::remove_all(path_, failed);
  }
  // Without a slash at the end.
  const std::string& path() const { return path_; }
  // A file of this name with this text; its path.
  std::string File(const std::string& name, const std::string& text) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

 private:
  std::string path_;
};

}  // namespace tessera
