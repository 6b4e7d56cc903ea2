#include "plan/input/read_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temporary_folder.h"
#include "plan/testing/read_text.h"

namespace tessera::plan {
namespace {

using testing::HasSubstr;

TEST(ReadWorkload, ByName) {
  const TemporaryFolder folder;
  const auto workload = ReadWorkload(folder.File("use.csv", "second,pod,duty_pct,memory_mib\n0,a,1,1\n"), {});
  ASSERT_TRUE(workload) << workload.error().Text();
  EXPECT_EQ(workload->title, "use.csv");
  EXPECT_EQ(workload->tenants.size(), 1u);
}

TEST(ReadWorkload, ColumnsThatAreNotKnown) {
  for (const char* columns : {"a,b", "second,pod,duty_pct", "second,pod,duty_pct,memory_mib,colour",
                              "second,pod,vgpu,duty_pct,memory_mib", "TIMESTAMP,ContextTokens", "client,at_ms,x"}) {
    const std::string error = ErrorOf(WorkloadOf("x.csv", std::string(columns) + "\n1,2,3,4\n"));
    EXPECT_THAT(error, HasSubstr("x.csv:1: these columns are no format that is known")) << columns;
    for (const char* known : {"second,pod,duty_pct,memory_mib", "second,vgpu,gpu,duty_pct,memory_mib",
                              "TIMESTAMP,ContextTokens,GeneratedTokens", "client,at_ms", "gap_s", ".toml", ".json"})
      EXPECT_THAT(error, HasSubstr(known));
  }
}

TEST(ReadWorkload, FilesThatAreNone) {
  const TemporaryFolder folder;
  for (const char* name : {"x.csv", "x.toml", "x.json", "x"}) {
    EXPECT_EQ(ErrorOf(WorkloadOf(name, "")), std::string(name) + " is empty");
    EXPECT_EQ(ReadWorkload(folder.path() + "/no/such/" + name, {}).error().code, ENOENT) << name;
  }
  EXPECT_EQ(ErrorOf(ReadWorkload(folder.path(), {})), folder.path() + " is a directory; name a file");
  EXPECT_THAT(ErrorOf(WorkloadOf("x.csv", std::string("\x7f"
                                                      "ELF\2\0\0",
                                                      7))),
              HasSubstr("a byte 0; is this a CSV file?"));
}

}  // namespace
}  // namespace tessera::plan
