#include "kubernetes/machine/driver_links.h"

#include <filesystem>

#include "cdi/driver_files.h"

namespace tessera::kubernetes {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrograms[] = {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"};

}  // namespace

Result<void> LinkDriver(const std::string& root, const std::string& folder) {
  const auto files = cdi::FindDriverFiles(root);
  if (!files) return std::unexpected(files.error());
  std::error_code error;
  for (const char* part : {"lib64", "bin"}) {
    fs::remove_all(folder + "/" + part, error);
    fs::create_directories(folder + "/" + part, error);
  }
  const auto link = [&](const std::string& file, const std::string& at) {
    if (!error && !file.empty()) fs::create_symlink(root + file, folder + at, error);
  };
  for (const cdi::Mount& library : files->libraries)
    link(library.host, "/lib64/" + fs::path(library.container).filename().string());
  for (const char* program : kPrograms)
    link(cdi::FileOfMachine(root, std::string("/usr/bin/") + program), std::string("/bin/") + program);
  if (error) return Fail(error.value(), "cannot link the NVIDIA driver in " + folder + ": " + error.message());
  return {};
}

}  // namespace tessera::kubernetes
