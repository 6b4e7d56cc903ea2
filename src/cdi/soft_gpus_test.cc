#include "cdi/soft_gpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tessera::cdi {
namespace {

TEST(SoftGpus, AreAFileThatProgramsShare) {
  const std::string name = "cdi-test-" + std::to_string(getpid());
  const std::string host = "/dev/shm/tessera-soft-4711-" + name;
  SpecFacts facts;
  const auto missing = AddSoftGpus(4711, name, facts);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().Text().find(host), std::string::npos);

  std::ofstream(host) << "";
  facts = {};
  ASSERT_TRUE(AddSoftGpus(4711, name, facts));
  std::filesystem::remove(host);
  EXPECT_TRUE(facts.soft);
  EXPECT_EQ(facts.soft_name, name);
  ASSERT_EQ(facts.mounts.size(), 2u);
  EXPECT_EQ(facts.mounts[0].container, host);
  EXPECT_EQ(facts.mounts[1].container, "/dev/shm/tessera-soft-0-" + name) << "rootless engines map the user to root";
  for (const Mount& mount : facts.mounts) EXPECT_TRUE(mount.writable);
}

}  // namespace
}  // namespace tessera::cdi
