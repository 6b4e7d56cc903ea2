#include "mover/testing/test_driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace tessera::mover {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr char kSoftState[] = "/dev/shm/tessera-soft-";

CUmemAllocationProp OnDevice(CUdevice device) {
  return {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
          .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

}  // namespace

const TestDriver& TestDriver::Get() {
  static const TestDriver& driver = *[] {
    const std::string name = "mover-test-" + std::to_string(getpid());
    setenv("TESSERA_SOFT", "2GiB,context=8MiB,pcie=40GB/s", 1);
    setenv("TESSERA_SOFT_NAME", name.c_str(), 1);
    std::atexit(
        [] { unlink((kSoftState + std::to_string(geteuid()) + "-mover-test-" + std::to_string(getpid())).c_str()); });
    const char* library = std::getenv("TESSERA_TEST_LIBCUDA");
    setenv("TESSERA_REAL_LIBCUDA", library != nullptr ? library : TESSERA_SOFT_LIBRARY, 1);
    auto* made = new TestDriver{.cuda = CudaLibrary::Load("").value()};
    void* const file = dlopen(std::getenv("TESSERA_REAL_LIBCUDA"), RTLD_NOW);
    made->copy_rows = reinterpret_cast<decltype(made->copy_rows)>(dlsym(file, "cuMemcpy2D_v2"));
    made->copy_out = reinterpret_cast<decltype(made->copy_out)>(dlsym(file, "cuMemcpyDtoH_v2"));
    CUcontext context = nullptr;
    CUuuid uuid;
    MUST(made->cuda.Init(0));
    MUST(made->cuda.DeviceGet(&made->device, 0));
    MUST(made->cuda.PrimaryCtxRetain(&context, made->device));
    MUST(made->cuda.CtxSetCurrent(context));
    MUST(made->cuda.DeviceGetUuid(&uuid, made->device));
    made->uuid = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                    static_cast<unsigned char>(uuid.bytes[i]));
      made->uuid += hex;
    }
    return made;
  }();
  return driver;
}

CUmemGenericAllocationHandle TestDriver::MakeChunk(std::uint64_t bytes) const {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = OnDevice(device);
  MUST(cuda.MemCreate(&handle, bytes, &properties, 0));
  return handle;
}

UniqueFd TestDriver::Export(CUmemGenericAllocationHandle handle) const {
  int fd = -1;
  MUST(cuda.MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return UniqueFd(fd);
}

}  // namespace tessera::mover
