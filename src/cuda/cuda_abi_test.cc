// Compares our header with NVIDIA's where that is installed, and with frozen numbers everywhere.
#include "cuda/cuda_abi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace ours = tessera::cuda;

#define STRUCT(name, bytes, alignment)                                     \
  static_assert(sizeof(ours::name) == (bytes), #name " changed its size"); \
  static_assert(alignof(ours::name) == (alignment), #name " changed its alignment");
#define FIELD(type, member)
#define VALUE(name)
#define CONSTANT(name) [[maybe_unused]] constexpr long long our_##name = static_cast<long long>(ours::name);
#include "cuda/abi_checks.def"
#undef STRUCT
#undef FIELD
#undef VALUE
#undef CONSTANT

#ifdef TESSERA_REAL_CUDA_H
// In the real header these names are macros, which would rewrite ours: so look at ours before it is included.
namespace {
const void* const our_legacy_stream = ours::CU_STREAM_LEGACY;
const void* const our_per_thread_stream = ours::CU_STREAM_PER_THREAD;
const void* const our_param_keys[] = {ours::CU_LAUNCH_PARAM_END, ours::CU_LAUNCH_PARAM_BUFFER_POINTER,
                                      ours::CU_LAUNCH_PARAM_BUFFER_SIZE};
}  // namespace

#include <cuda.h>

#define STRUCT(name, bytes, alignment)                                           \
  static_assert(sizeof(ours::name) == sizeof(::name), #name " differs in size"); \
  static_assert(alignof(ours::name) == alignof(::name), #name " differs in alignment");
#define FIELD(type, member)                                                                                     \
  static_assert(offsetof(ours::type, member) == offsetof(::type, member), #type "." #member " lies elsewhere"); \
  static_assert(sizeof(ours::type::member) == sizeof(::type::member), #type "." #member " differs in size");
#define VALUE(name) \
  static_assert(static_cast<long long>(ours::name) == static_cast<long long>(::name), #name " differs");
#define CONSTANT(name) static_assert(our_##name == static_cast<long long>(name), #name " differs");
#define RESULT(name, value, text) VALUE(name)
#if CUDA_VERSION >= 13000 && CUDA_VERSION < 14000
#include "cuda/abi_checks.def"
#include "cuda/results.def"

TEST(CudaAbi, SpecialHandles) {
  EXPECT_EQ(our_legacy_stream, CU_STREAM_LEGACY);
  EXPECT_EQ(our_per_thread_stream, CU_STREAM_PER_THREAD);
  EXPECT_EQ(our_param_keys[0], CU_LAUNCH_PARAM_END);
  EXPECT_EQ(our_param_keys[1], CU_LAUNCH_PARAM_BUFFER_POINTER);
  EXPECT_EQ(our_param_keys[2], CU_LAUNCH_PARAM_BUFFER_SIZE);
}
#endif
#undef RESULT
#endif

namespace {

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Trampolines are made from these lists: one that is out of order or has a stray line would silently lose symbols.
void CheckSymbols(const std::string& file, const std::string& prefix, std::size_t count) {
  const auto names = Lines(std::string(TESSERA_CUDA_DIR) + "/" + file);
  EXPECT_EQ(names.size(), count);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  for (const auto& name : names) EXPECT_TRUE(name.starts_with(prefix)) << name;
}

TEST(Symbols, DriverList) { CheckSymbols("libcuda.symbols", "cu", 682); }
TEST(Symbols, NvmlList) { CheckSymbols("libnvidia-ml.symbols", "nvml", 404); }

}  // namespace
