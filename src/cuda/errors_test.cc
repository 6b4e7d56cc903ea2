#include "cuda/errors.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tessera::cuda {
namespace {

TEST(Errors, NameAndText) {
  EXPECT_STREQ(ResultName(CUDA_SUCCESS), "CUDA_SUCCESS");
  EXPECT_STREQ(ResultName(CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(ResultText(CUDA_ERROR_OUT_OF_MEMORY), "not enough memory");
}

TEST(Errors, UnknownValueHasNeither) {
  EXPECT_EQ(ResultName(static_cast<CUresult>(12345)), nullptr);
  EXPECT_EQ(ResultText(static_cast<CUresult>(-1)), nullptr);
}

TEST(Errors, ValuesAndNamesAreUnique) {
  std::set<int> values;
  std::set<std::string> names;
#define RESULT(name, value, text)           \
  EXPECT_TRUE(values.insert(value).second); \
  EXPECT_TRUE(names.insert(#name).second);  \
  EXPECT_GT(std::string(text).size(), 5u);
#include "cuda/results.def"
#undef RESULT
  EXPECT_EQ(values.size(), 101u);
}

}  // namespace
}  // namespace tessera::cuda
