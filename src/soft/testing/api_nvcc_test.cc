// Kernels compiled by nvcc run on the soft GPU: PTX, and a fat binary with PTX in it. Skipped without nvcc.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/temporary_folder.h"
#include "soft/testing/test_api.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

const char* FindNvcc() {
  for (const char* path : {"/usr/local/cuda/bin/nvcc", "/usr/bin/nvcc"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return nullptr;
}

class ApiNvcc : public SoftApiTest, public testing::WithParamInterface<const char*> {};

TEST_P(ApiNvcc, KernelRuns) {
  const char* nvcc = FindNvcc();
  if (nvcc == nullptr) GTEST_SKIP() << "no nvcc";
  const TemporaryFolder folder;
  const std::string image = folder.path() + "/vector_add";
  const std::string compile = std::string(nvcc) + " " + GetParam() + " -arch=compute_90 -o " + image +
                              " " TESSERA_SOFT_TESTDATA "/vector_add.cu";
  ASSERT_EQ(std::system(compile.c_str()), 0) << compile;

  CUmodule module = nullptr;
  ASSERT_OK(cuModuleLoad(&module, image.c_str()));
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleGetFunction(&function, module, "vector_add"));
  int count = 1000;
  std::vector<float> a(count), b(count), sum(count);
  for (int i = 0; i < count; ++i) a[i] = static_cast<float>(i), b[i] = 0.5f;
  const std::size_t bytes = sizeof(float) * a.size();
  CUdeviceptr memory[3];
  for (CUdeviceptr& each : memory) ASSERT_OK(cuMemAlloc_v2(&each, bytes));
  EXPECT_OK(cuMemcpyHtoD_v2(memory[0], a.data(), bytes));
  EXPECT_OK(cuMemcpyHtoD_v2(memory[1], b.data(), bytes));
  void* parameters[] = {&memory[0], &memory[1], &memory[2], &count};
  EXPECT_OK(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
  EXPECT_OK(cuMemcpyDtoH_v2(sum.data(), memory[2], bytes));
  for (int i = 0; i < count; ++i) ASSERT_EQ(sum[i], static_cast<float>(i) + 0.5f);
  EXPECT_OK(cuModuleUnload(module));
}

INSTANTIATE_TEST_SUITE_P(Images, ApiNvcc, testing::Values("-ptx", "-fatbin"));

}  // namespace
}  // namespace tessera::soft
