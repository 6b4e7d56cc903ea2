// Which driver Tessera's own programs in lib/tessera take.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera::cuda {

// For OpenDriver (cuda/find_driver.h): `named` if it is not empty, or the soft GPU beside the calling program if it is
// to be soft. Empty, so that OpenDriver looks for a driver, if neither, or if TESSERA_REAL_LIBCUDA names one.
inline std::string OwnDriver(const std::string& named, bool soft) {
  if (std::getenv("TESSERA_REAL_LIBCUDA") != nullptr) return "";
  if (!named.empty() || !soft) return named;
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "soft/libcuda.so.1";
}

}  // namespace tessera::cuda
