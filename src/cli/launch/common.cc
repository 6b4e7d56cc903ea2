#include "cli/launch/common.h"

#include <filesystem>

#include "base/install/run_dir.h"

namespace tessera::cli {

std::string Common::RunDirectory() const {
  // Absolute, because daemon and program may have another working directory than this process.
  std::error_code error;
  const std::string path = RunDir(run_dir, soft);
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

}  // namespace tessera::cli
