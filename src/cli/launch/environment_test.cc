#include "cli/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tessera::cli {
namespace {

using testing::Contains;
using testing::Key;
using testing::Not;
using testing::Pair;

Result<Variables> With(const ProgramPlace& place, std::map<std::string, std::string> current = {}) {
  return ProgramVariables(place, [&](const char* name) -> const char* {
    const auto found = current.find(name);
    return found == current.end() ? nullptr : found->second.c_str();
  });
}

const ProgramPlace kReal = {
    .installation = {"/opt/tessera"}, .run_dir = "/run/tessera", .vgpus = {"a", "b"}, .gpu_uuids = {"GPU-1", "GPU-2"}};

TEST(Environment, PutsTheShimFirst) {
  const auto variables = With(kReal, {{"LD_PRELOAD", "/lib/other.so"}, {"LD_LIBRARY_PATH", "/lib/x:/lib/y"}});
  ASSERT_TRUE(variables);
  EXPECT_THAT(*variables, Contains(Pair("LD_PRELOAD", "/opt/tessera/lib/tessera/libcuda.so.1:/lib/other.so")));
  EXPECT_THAT(*variables, Contains(Pair("LD_LIBRARY_PATH", "/opt/tessera/lib/tessera:/lib/x:/lib/y")));
  EXPECT_THAT(*variables, Contains(Pair("TESSERA_VGPU", "a,b")));
  EXPECT_THAT(*variables, Contains(Pair("TESSERA_RUN_DIR", "/run/tessera")));
}

TEST(Environment, NestedRunsPreloadOnce) {
  const std::string shim = "/opt/tessera/lib/tessera/libcuda.so.1";
  EXPECT_THAT(*With(kReal, {{"LD_PRELOAD", shim + ":/x.so"}}), Contains(Pair("LD_PRELOAD", shim + ":/x.so")));
  EXPECT_THAT(*With(kReal, {{"LD_PRELOAD", shim}}), Contains(Pair("LD_PRELOAD", shim)));
  EXPECT_THAT(*With(kReal, {{"LD_PRELOAD", ""}}), Contains(Pair("LD_PRELOAD", shim)));
}

TEST(Environment, ShowsTheProgramOnlyItsGpus) {
  EXPECT_THAT(*With(kReal), Contains(Pair("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2")));
  EXPECT_THAT(*With(kReal, {{"CUDA_VISIBLE_DEVICES", "1"}}), Not(Contains(Key("CUDA_VISIBLE_DEVICES"))));
  EXPECT_THAT(*With(kReal, {{"CUDA_VISIBLE_DEVICES", ""}}), Not(Contains(Key("CUDA_VISIBLE_DEVICES"))));
}

TEST(Environment, SoftGpuTakesTheDriversPlace) {
  ProgramPlace place = kReal;
  place.soft = true;
  EXPECT_THAT(*With(place), Contains(Pair("TESSERA_REAL_LIBCUDA", "/opt/tessera/lib/tessera/soft/libcuda.so.1")));
  EXPECT_THAT(*With(place), Not(Contains(Key("TESSERA_SOFT"))));
  place.soft_spec = "2x16GiB";
  EXPECT_THAT(*With(place), Contains(Pair("TESSERA_SOFT", "2x16GiB")));
}

TEST(Environment, OfASpaceLeadsToItsServer) {
  EXPECT_THAT(*With(kReal), Not(Contains(Key("CUDA_MPS_PIPE_DIRECTORY"))));
  EXPECT_THAT(*With(kReal), Not(Contains(Key("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))));
  ProgramPlace place = kReal;
  place.mps_pipes = "/run/tessera/mps/a/pipe";
  place.sm_limit_pct = 33.5;
  const auto variables = With(place, {{"CUDA_MPS_PIPE_DIRECTORY", "/tmp"}, {"CUDA_VISIBLE_DEVICES", "0"}});
  EXPECT_THAT(*variables, Contains(Pair("CUDA_MPS_PIPE_DIRECTORY", "/run/tessera/mps/a/pipe")));
  EXPECT_THAT(*variables, Contains(Pair("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "33.5")));
  EXPECT_THAT(*variables, Contains(Pair("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2")))
      << "an index would be one of those that the server sees";
}

TEST(Environment, RefusesFoldersThatLdPreloadCannotName) {
  ProgramPlace place = kReal;
  for (const std::string prefix : {"/opt/my tools", "/opt/a:b"}) {
    place.installation.prefix = prefix;
    const auto variables = With(place);
    ASSERT_FALSE(variables);
    EXPECT_NE(variables.error().message.find(prefix), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::cli
