#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <string>

#include "soft/testing/test_api.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

using ApiDevice = SoftApiTest;

TEST_F(ApiDevice, DevicesAreAsSpecified) {
  int count = 0;
  EXPECT_OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 2);
  CUdevice device = -1;
  EXPECT_OK(cuDeviceGet(&device, 1));
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  char name[64];
  EXPECT_OK(cuDeviceGetName(name, sizeof name, 0));
  EXPECT_STREQ(name, "Tessera Soft GPU");
  std::size_t bytes = 0;
  EXPECT_OK(cuDeviceTotalMem_v2(&bytes, 0));
  EXPECT_EQ(bytes, kTestMemory);
  CUuuid uuids[2];
  EXPECT_OK(cuDeviceGetUuid_v2(&uuids[0], 0));
  EXPECT_OK(cuDeviceGetUuid_v2(&uuids[1], 1));
  EXPECT_NE(std::memcmp(&uuids[0], &uuids[1], sizeof(CUuuid)), 0);
}

TEST_F(ApiDevice, Attributes) {
  const auto attribute = [](CUdevice_attribute which) {
    int value = -1;
    EXPECT_OK(cuDeviceGetAttribute(&value, which, 0));
    return value;
  };
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 8);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED), 0);
  int value = 0;
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ApiDevice, BusIdFindsTheDevice) {
  char id[32];
  ASSERT_OK(cuDeviceGetPCIBusId(id, sizeof id, 1));
  CUdevice device = -1;
  EXPECT_OK(cuDeviceGetByPCIBusId(&device, id));
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cuDeviceGetByPCIBusId(&device, "0000:01:00.0"), CUDA_ERROR_INVALID_DEVICE);
}

TEST(ApiErrors, NamesAndTexts) {
  const char* text = nullptr;
  EXPECT_OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "not enough memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(5555), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

void* Handle() {
  static void* const library = dlopen(TESSERA_SOFT_LIBRARY, RTLD_NOW);
  return library;
}

TEST(EntryPoint, EverySymbolOfTheDriverIsExported) {
  ASSERT_NE(Handle(), nullptr) << dlerror();
  std::ifstream list(TESSERA_CUDA_DIR "/libcuda.symbols");
  int count = 0;
  for (std::string name; std::getline(list, name); ++count) EXPECT_NE(dlsym(Handle(), name.c_str()), nullptr) << name;
  EXPECT_EQ(count, 682);
}

TEST(EntryPoint, UnsupportedFunctionSaysSo) {
  auto* function = reinterpret_cast<CUresult (*)(CUgraphicsResource)>(dlsym(Handle(), "cuGraphicsUnregisterResource"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(function(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(function(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tessera soft GPU: cuGraphicsUnregisterResource is not supported\n");
}

TEST(EntryPoint, VersionAndFlagsDecide) {
  const auto find = [](const char* name, int version, std::uint64_t flags) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status;
    EXPECT_OK(cuGetProcAddress_v2(name, &function, version, flags, &status)) << name;
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    return function;
  };
  EXPECT_EQ(find("cuMemAlloc", 13000, 0), dlsym(Handle(), "cuMemAlloc_v2"));
  EXPECT_EQ(find("cuGetProcAddress", 11030, 0), dlsym(Handle(), "cuGetProcAddress"));
  EXPECT_EQ(find("cuGetProcAddress", 12000, 0), dlsym(Handle(), "cuGetProcAddress_v2"));
  const std::uint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(find("cuMemcpyHtoD", 13000, own), dlsym(Handle(), "cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(find("cuLaunchKernel", 13000, own), dlsym(Handle(), "cuLaunchKernel_ptsz"));
  EXPECT_EQ(find("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM), dlsym(Handle(), "cuLaunchKernel"));
  EXPECT_EQ(find("cuDeviceGet", 13000, own), dlsym(Handle(), "cuDeviceGet"));
}

TEST(EntryPoint, UnknownAndTooNew) {
  void* function = &function;
  CUdriverProcAddressQueryResult status;
  EXPECT_EQ(cuGetProcAddress_v2("cuNoSuchThing", &function, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(cuGetProcAddress_v2("cuMemPrefetchAsync", &function, 7000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &function, 13000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", &function, 13000, 64, &status), CUDA_ERROR_INVALID_VALUE);
}

TEST(EntryPoint, NoPrivateInterfaces) {
  const CUuuid id = {"some interface!"};
  const void* table = &id;
  EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(table, nullptr);
}

}  // namespace
}  // namespace tessera::soft
