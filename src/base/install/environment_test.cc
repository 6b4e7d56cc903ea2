#include "base/install/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera {
namespace {

TEST(Environment, WhatIsSaidToOtherProgramsIsForgotten) {
  const char* const theirs[] = {"CUDA_MPS_PIPE_DIRECTORY",
                                "CUDA_VISIBLE_DEVICES",
                                "CUDA_LAUNCH_BLOCKING",
                                "NVIDIA_VISIBLE_DEVICES",
                                "LD_PRELOAD",
                                "LD_LIBRARY_PATH",
                                "TESSERA_VGPU",
                                "TESSERA_SWAP",
                                "GLIBC_TUNABLES",
                                "MALLOC_ARENA_MAX"};
  const char* const ours[] = {"TESSERA_RUN_DIR",     "TESSERA_SOFT",          "TESSERA_SOFT_NAME",
                              "TESSERA_SOFT_FAULTS", "TESSERA_SOFT_USER",     "TESSERA_REAL_LIBCUDA",
                              "TESSERA_REAL_NVML",   "XDG_RUNTIME_DIR",       "PATH_OF_LD_",
                              "NOTIFY_SOCKET",       "TESSERA_LASTING_GROUPS"};
  for (const char* name : theirs) setenv(name, "x", 1);
  for (const char* name : ours) setenv(name, "x", 1);
  ForgetOtherPrograms();
  for (const char* name : theirs) EXPECT_EQ(std::getenv(name), nullptr) << name;
  for (const char* name : ours) EXPECT_NE(std::getenv(name), nullptr) << name;
  for (const char* name : ours) unsetenv(name);
}

}  // namespace
}  // namespace tessera
