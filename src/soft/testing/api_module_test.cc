#include <cstring>

#include "base/testing/temporary_folder.h"
#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

using ModuleTest = DriverTest;

TEST_F(ModuleTest, FindsFunctionsAndVariables) {
  CUfunction function = nullptr;
  EXPECT_OK(d.cuModuleGetFunction(&function, module, "add"));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, d.cuModuleGetFunction(&function, module, "subtract"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuModuleGetFunction(&function, module, ""));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuModuleGetFunction(&function, module, nullptr));

  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  EXPECT_OK(d.cuModuleGetGlobal_v2(&address, &bytes, module, "variable"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(Word(address), 42u);
  EXPECT_OK(d.cuModuleGetGlobal_v2(nullptr, &bytes, module, "table"));
  EXPECT_EQ(bytes, 16u);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, d.cuModuleGetGlobal_v2(&address, &bytes, module, "nothing"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuModuleGetGlobal_v2(nullptr, nullptr, module, "variable"));
}

TEST_F(ModuleTest, DescribesFunctions) {
  int value = 0;
  const CUfunction limited = Kernel("limited");
  EXPECT_OK(d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, limited));
  EXPECT_EQ(value, 64);
  EXPECT_OK(d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, limited));
  EXPECT_EQ(value, 1024);
  EXPECT_OK(d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, limited));
  EXPECT_EQ(value, (48 << 10) - 1024);
  EXPECT_OK(d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, limited));
  EXPECT_EQ(value, 70);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(99), limited));

  std::size_t offset = 0, bytes = 0;
  EXPECT_OK(d.cuFuncGetParamInfo(Kernel("by_value"), 1, &offset, &bytes));
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(bytes, 24u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuFuncGetParamInfo(Kernel("by_value"), 2, &offset, &bytes));
  const char* name = nullptr;
  EXPECT_OK(d.cuFuncGetName(&name, limited));
  EXPECT_STREQ(name, "limited");
}

TEST_F(ModuleTest, SetsDynamicSharedMemory) {
  const CUfunction limited = Kernel("limited");
  EXPECT_OK(d.cuFuncSetAttribute(limited, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            d.cuFuncSetAttribute(limited, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300 << 10));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuFuncSetAttribute(limited, CU_FUNC_ATTRIBUTE_NUM_REGS, 3));
}

TEST_F(ModuleTest, RefusesBadImages) {
  CUmodule bad = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, d.cuModuleLoadData(&bad, "hello"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuModuleLoadData(&bad, nullptr));
  EXPECT_CU(CUDA_ERROR_FILE_NOT_FOUND, d.cuModuleLoad(&bad, "/nonexistent"));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuModuleUnload(nullptr));
}

TEST_F(ModuleTest, SaysWhatIsWrongWithPtx) {
  char log[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule bad = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, d.cuModuleLoadDataEx(&bad,
                                                         ".version 7.0\n.target sm_70\n.address_size 64\n"
                                                         ".visible .entry k() { frobnicate.u32 %r1; ret; }",
                                                         2, options, values));
  EXPECT_NE(std::string(log).find("frobnicate"), std::string::npos) << log;
  EXPECT_NE(std::string(log).find("line 4"), std::string::npos) << log;
  EXPECT_GE(reinterpret_cast<std::size_t>(values[1]), std::strlen(log));

  values[1] = reinterpret_cast<void*>(sizeof log);
  EXPECT_OK(d.cuModuleLoadDataEx(&bad, kTestPtx, 2, options, values));
  EXPECT_EQ(values[1], nullptr);
}

TEST_F(ModuleTest, LoadsFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.File("test.ptx", kTestPtx);
  CUmodule loaded = nullptr;
  EXPECT_OK(d.cuModuleLoad(&loaded, path.c_str()));
  unsigned count = 0;
  EXPECT_OK(d.cuModuleGetFunctionCount(&count, loaded));
  EXPECT_EQ(count, 7u);
  EXPECT_OK(d.cuModuleUnload(loaded));
}

TEST_F(ModuleTest, EachLoadHasItsOwnVariables) {
  CUmodule second = nullptr;
  ASSERT_OK(d.cuModuleLoadData(&second, kTestPtx));
  CUdeviceptr here = 0, there = 0;
  EXPECT_OK(d.cuModuleGetGlobal_v2(&here, nullptr, module, "variable"));
  EXPECT_OK(d.cuModuleGetGlobal_v2(&there, nullptr, second, "variable"));
  EXPECT_OK(d.cuMemsetD32_v2(there, 1, 1));
  EXPECT_EQ(Word(here), 42u);
  EXPECT_EQ(Word(there), 1u);
  EXPECT_OK(d.cuModuleUnload(second));
}

class LibraryTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_OK(d.cuLibraryLoadData(&library, kTestPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  CUlibrary library = nullptr;
};

TEST_F(LibraryTest, KernelsRunLikeFunctions) {
  CUkernel kernel = nullptr;
  ASSERT_OK(d.cuLibraryGetKernel(&kernel, library, "add"));
  CUdeviceptr words = NewWords(1);
  std::uint32_t two = 2;
  void* parameters[] = {&words, &two};
  EXPECT_OK(Launch(reinterpret_cast<CUfunction>(kernel), nullptr, parameters));
  CUfunction function = nullptr;
  EXPECT_OK(d.cuKernelGetFunction(&function, kernel));
  EXPECT_OK(Launch(function, nullptr, parameters));
  EXPECT_EQ(Word(words), 4u);
}

TEST_F(LibraryTest, AnswersQuestions) {
  CUkernel kernel = nullptr;
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, d.cuLibraryGetKernel(&kernel, library, "subtract"));
  ASSERT_OK(d.cuLibraryGetKernel(&kernel, library, "limited"));
  unsigned count = 0;
  EXPECT_OK(d.cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 7u);
  const char* name = nullptr;
  EXPECT_OK(d.cuKernelGetName(&name, kernel));
  EXPECT_STREQ(name, "limited");
  int value = 0;
  EXPECT_OK(d.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
  EXPECT_EQ(value, 64);
  EXPECT_OK(d.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60 << 10, kernel, device));
  EXPECT_OK(d.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, device));
  EXPECT_EQ(value, 60 << 10);
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  EXPECT_OK(d.cuLibraryGetGlobal(&address, &bytes, library, "variable"));
  EXPECT_EQ(Word(address), 42u);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, d.cuLibraryGetManaged(&address, &bytes, library, "variable"));
  CUmodule inside = nullptr;
  EXPECT_OK(d.cuLibraryGetModule(&inside, library));
}

TEST_F(LibraryTest, UnloadInvalidatesHandles) {
  CUkernel kernel = nullptr;
  ASSERT_OK(d.cuLibraryGetKernel(&kernel, library, "add"));
  EXPECT_OK(d.cuLibraryUnload(library));
  int value = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE,
            d.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, reinterpret_cast<CUfunction>(kernel)));
}

TEST_F(ModuleTest, LinksOneText) {
  CUlinkState state = nullptr;
  ASSERT_OK(d.cuLinkCreate_v2(0, nullptr, nullptr, &state));
  EXPECT_OK(d.cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, const_cast<char*>(kTestPtx), sizeof kTestPtx, "test", 0,
                               nullptr, nullptr));
  void* image = nullptr;
  std::size_t bytes = 0;
  EXPECT_OK(d.cuLinkComplete(state, &image, &bytes));
  EXPECT_GT(bytes, 0u);
  CUmodule linked = nullptr;
  EXPECT_OK(d.cuModuleLoadData(&linked, image));
  EXPECT_OK(d.cuLinkDestroy(state));
  CUfunction function = nullptr;
  EXPECT_OK(d.cuModuleGetFunction(&function, linked, "add"));
}

}  // namespace
}  // namespace tessera::soft
