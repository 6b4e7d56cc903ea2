#include "cuda/entry_points.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

namespace tessera::cuda {
namespace {

TEST(EntryPoints, VersionDecides) {
  EXPECT_EQ(EntryPointSymbol("cuMemAlloc", 13000), "cuMemAlloc_v2");
  EXPECT_EQ(EntryPointSymbol("cuMemAlloc", 3010), "cuMemAlloc");
  EXPECT_EQ(EntryPointSymbol("cuGetProcAddress", 11080), "cuGetProcAddress");
  EXPECT_EQ(EntryPointSymbol("cuGetProcAddress", 12000), "cuGetProcAddress_v2");
  EXPECT_EQ(EntryPointSymbol("cuStreamGetCaptureInfo", 11020), "cuStreamGetCaptureInfo");
  EXPECT_EQ(EntryPointSymbol("cuStreamGetCaptureInfo", 12010), "cuStreamGetCaptureInfo_v2");
  EXPECT_EQ(EntryPointSymbol("cuCtxCreate", 13000), "cuCtxCreate_v4");
}

TEST(EntryPoints, OneVersionIsTheNameItself) {
  EXPECT_EQ(EntryPointSymbol("cuLaunchKernel", 13000), "cuLaunchKernel");
  EXPECT_EQ(EntryPointSymbol("cuFromTheFuture", 13000), "cuFromTheFuture");
}

TEST(EntryPoints, TooOldAProgram) { EXPECT_EQ(EntryPointSymbol("cuMemPrefetchAsync", 7000), ""); }

TEST(EntryPoints, TableIsSortedAndNamesRealSymbols) {
  std::set<std::string> symbols;
  std::ifstream file(std::string(TESSERA_CUDA_DIR) + "/libcuda.symbols");
  for (std::string line; std::getline(file, line);) symbols.insert(line);
  std::pair<std::string, int> previous;
#define ENTRY(name, since, symbol)                           \
  EXPECT_TRUE(symbols.contains(#symbol)) << #symbol;         \
  EXPECT_LT(previous, std::pair(std::string(#name), since)); \
  previous = {#name, since};
#include "cuda/entry_points.def"
#undef ENTRY
}

}  // namespace
}  // namespace tessera::cuda
