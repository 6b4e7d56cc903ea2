// For tests of memory by handle (cuMemCreate, cuMemMap) through the hooks.
#pragma once

#include <set>

#include "base/unique_fd.h"
#include "shim/load/hook.h"
#include "shim/memory/paging.h"
#include "shim/testing/shim_fixture.h"

TESSERA_HOOK cuMemAddressReserve(tessera::cuda::CUdeviceptr*, size_t, size_t, tessera::cuda::CUdeviceptr,
                                 unsigned long long);
TESSERA_HOOK cuMemCreate(tessera::cuda::CUmemGenericAllocationHandle*, size_t,
                         const tessera::cuda::CUmemAllocationProp*, unsigned long long);
TESSERA_HOOK cuMemMap(tessera::cuda::CUdeviceptr, size_t, size_t, tessera::cuda::CUmemGenericAllocationHandle,
                      unsigned long long);
TESSERA_HOOK cuMemSetAccess(tessera::cuda::CUdeviceptr, size_t, const tessera::cuda::CUmemAccessDesc*, size_t);

namespace tessera::shim {

// Memory by handle where memory is swapped: a device with credit, its line to the mover, and calls as programs make
// them.
class HandleFixture : public ShimFixture {
 protected:
  HandleFixture() {
    Swap();
    Attached();
    line_ = Daemon().TakeLine();
    Page().memory_credit = kCredit;
    Page().memory_credit_keep = kCredit;
    context_ = MakeContext();
    room_before_ = Page().room_credit;
    gpu_before_ = Cuda().memory.DeviceBytes();
  }

  cuda::CUmemAllocationProp OnDevice(cuda::CUmemAllocationHandleType types = cuda::CU_MEM_HANDLE_TYPE_NONE) const {
    cuda::CUmemAllocationProp prop{};
    prop.type = cuda::CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = types;
    prop.location = {cuda::CU_MEM_LOCATION_TYPE_DEVICE, device};
    return prop;
  }
  cuda::CUmemGenericAllocationHandle Create(std::uint64_t bytes,
                                            cuda::CUmemAllocationHandleType types = cuda::CU_MEM_HANDLE_TYPE_NONE) {
    cuda::CUmemGenericAllocationHandle handle = 0;
    const cuda::CUmemAllocationProp prop = OnDevice(types);
    EXPECT_EQ(cuMemCreate(&handle, bytes, &prop, 0), cuda::CUDA_SUCCESS);
    return handle;
  }
  static cuda::CUdeviceptr Reserve(std::uint64_t bytes) {
    cuda::CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAddressReserve(&address, bytes, 0, 0, 0), cuda::CUDA_SUCCESS);
    return address;
  }
  bool Ours(cuda::CUdeviceptr address) { return Paging::Of(address) == Attached().Pager(); }
  cuda::CUresult Open(cuda::CUdeviceptr address, std::uint64_t bytes) const {
    const cuda::CUmemAccessDesc access = {{cuda::CU_MEM_LOCATION_TYPE_DEVICE, device},
                                          cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(address, bytes, &access, 1);
  }
  // GPU memory that this test has.
  std::uint64_t OnGpu() const { return Cuda().memory.DeviceBytes() - gpu_before_; }
  std::uint64_t Charged() { return static_cast<std::uint64_t>(kCredit - Page().memory_credit); }
  std::uint64_t RoomTaken() { return static_cast<std::uint64_t>(room_before_ - Page().room_credit); }
  std::uint64_t PinnedBy(wire::PinReason reason) { return Page().pinned_by[static_cast<std::size_t>(reason)]; }
  std::uint64_t Vmm() { return PinnedBy(wire::PinReason::kVmm); }

  // Memory in two pieces, with a word in each, mapped at the begin of a reservation of 256 MiB.
  cuda::CUdeviceptr MapInPieces(cuda::CUmemGenericAllocationHandle* handle) {
    Cuda().Put(k_cuMemcpyDtoD_v2, &CopyWords);
    Cuda().Put(k_cuMemGetAccess, &DriverAccess);
    reach = {device};
    *handle = Create(kPieces, cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    const cuda::CUdeviceptr address = Reserve(256 * kMiB);
    EXPECT_EQ(cuMemMap(address, kPieces, 0, *handle, 0), cuda::CUDA_SUCCESS);
    EXPECT_EQ(Open(address, kPieces), cuda::CUDA_SUCCESS);
    Cuda().memory.Write(address, 77);
    Cuda().memory.Write(address + kSecond, 78);
    return address;
  }
  static void ExpectWords(cuda::CUdeviceptr address) {
    EXPECT_EQ(Cuda().memory.Read(address), 77u);
    EXPECT_EQ(Cuda().memory.Read(address + kSecond), 78u);
  }

  // Functions of the driver.
  static cuda::CUresult CopyWords(cuda::CUdeviceptr to, cuda::CUdeviceptr from, std::size_t) {
    REAL_AS(cuCtxGetDevice, cuda::CUdevice*)(&copied_on);
    Cuda().memory.Write(to, Cuda().memory.Read(from));
    // `from` is in pieces, `to` is not.
    Cuda().memory.Write(to + kSecond, Cuda().memory.Read(from + kSecond));
    return cuda::CUDA_SUCCESS;
  }
  static cuda::CUresult DriverAccess(unsigned long long* flags, const cuda::CUmemLocation* location,
                                     cuda::CUdeviceptr) {
    return *flags = reach.contains(location->id) ? 3 : 0, cuda::CUDA_SUCCESS;
  }

  static constexpr std::uint64_t kPieces = 100 * kMiB, kSecond = 70 * kMiB;
  static inline cuda::CUdevice copied_on = -1;
  static inline std::set<cuda::CUdevice> reach;

  static constexpr std::int64_t kCredit = std::int64_t{1} << 34;
  cuda::CUcontext context_ = nullptr;
  UniqueFd line_;
  std::int64_t room_before_ = 0;
  std::uint64_t gpu_before_ = 0;
};

}  // namespace tessera::shim
