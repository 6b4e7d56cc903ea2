#include "base/install/installation.h"

#include <filesystem>

namespace tessera {

Installation Installation::Find() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  // Without /proc nothing else works either, so the usual place is as good as any for the error that will follow.
  if (error) return {"/usr/local"};
  return {self.parent_path().parent_path().string()};
}

}  // namespace tessera
