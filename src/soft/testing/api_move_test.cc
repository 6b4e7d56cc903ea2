// Memory is moved under work that stands still: what the pager and the mover do.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "soft/shared/shared_state.h"
#include "soft/shared/steering.h"
#include "soft/testing/test_api.h"
#include "soft/testing/test_peer.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr CUmemAccessDesc kDeviceAccess = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

// Each thread adds one to each of its words, pass after pass until *stop; then passes[thread] is their number.
constexpr char kPasses[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry passes(.param .u64 words, .param .u32 count, .param .u64 stop, .param .u64 passes)
{
  .reg .u32 %r<7>; .reg .u64 %d<5>; .reg .pred %p<2>;
  ld.param.u64 %d0, [words];
  ld.param.u32 %r0, [count];
  ld.param.u64 %d1, [stop];
  ld.param.u64 %d2, [passes];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, 0;
PASS:
  mov.u32 %r4, %r1;
WORD:
  mul.wide.u32 %d3, %r4, 4;
  add.u64 %d3, %d0, %d3;
  ld.global.u32 %r5, [%d3];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%d3], %r5;
  add.u32 %r4, %r4, %r2;
  setp.lt.u32 %p0, %r4, %r0;
  @%p0 bra WORD;
  add.u32 %r3, %r3, 1;
  ld.volatile.global.u32 %r6, [%d1];
  setp.eq.u32 %p1, %r6, 0;
  @%p1 bra PASS;
  mul.wide.u32 %d4, %r1, 4;
  add.u64 %d4, %d2, %d4;
  st.global.u32 [%d4], %r3;
  ret;
}
)";

// Memory that can be moved, and the test's own look at it.
class Memory {
 public:
  Memory(CUmemLocationType type, std::size_t bytes) : bytes_(bytes) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {type, 0}};
    EXPECT_OK(cuMemCreate(&handle_, bytes, &properties, 0));
    int file = -1;
    EXPECT_OK(cuMemExportToShareableHandle(&file, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    file_.Reset(file);
    view_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (view_ == MAP_FAILED) abort();
  }
  ~Memory() {
    munmap(view_, bytes_);
    EXPECT_OK(cuMemRelease(handle_));
  }
  Memory(const Memory&) = delete;

  int file() const { return file_.Get(); }
  volatile std::uint32_t* words() const { return static_cast<volatile std::uint32_t*>(view_); }
  std::vector<std::byte> Bytes() const {
    const auto* begin = static_cast<const std::byte*>(view_);
    return {begin, begin + bytes_};
  }
  // Bytes that were ever written, in whole pages.
  std::uint64_t Pages() const {
    struct stat status{};
    return fstat(file_.Get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512 : 0;
  }
  bool Is(const std::vector<std::byte>& bytes) const { return std::memcmp(view_, bytes.data(), bytes_) == 0; }
  void Spoil() { std::memset(view_, 0xee, bytes_); }

  void Map(CUdeviceptr address) const {
    ASSERT_OK(cuMemMap(address, bytes_, 0, handle_, 0));
    ASSERT_OK(cuMemSetAccess(address, bytes_, &kDeviceAccess, 1));
  }

 private:
  const std::size_t bytes_;
  CUmemGenericAllocationHandle handle_ = 0;
  UniqueFd file_;
  void* view_ = nullptr;
};

class ApiMove : public SoftApiTest {
 protected:
  void SetUp() override {
    SoftApiTest::SetUp();
    auto state = SharedState::Attach(SharedState::DefaultPath(), "");
    ASSERT_TRUE(state);
    state_ = std::move(*state);
  }
  void Freeze(Frozen frozen) {
    const auto done = SetFrozen(*state_, 0, getpid(), frozen);
    ASSERT_TRUE(done) << done.error().Text();
  }

  std::unique_ptr<SharedState> state_;
};

TEST_F(ApiMove, WhatWasNeverWrittenTakesNoMemoryWhenItIsCopied) {
  constexpr std::size_t kBytes = 4 << 20;
  const auto page_bytes = static_cast<std::size_t>(getpagesize());
  Memory device(CU_MEM_LOCATION_TYPE_DEVICE, kBytes);
  Memory host(CU_MEM_LOCATION_TYPE_HOST_NUMA, kBytes);
  CUdeviceptr from = 0, to = 0;
  ASSERT_OK(cuMemAddressReserve(&from, kBytes, 0, 0, 0));
  ASSERT_OK(cuMemAddressReserve(&to, kBytes, 0, 0, 0));
  device.Map(from);
  host.Map(to);
  const auto write = [](const Memory& memory, std::size_t at, std::uint32_t word) { memory.words()[at / 4] = word; };
  write(device, 0, 1);
  write(device, kBytes / 2, 2);
  write(device, kBytes - 4, 3);
  ASSERT_OK(cuMemcpyDtoD_v2(to, from, kBytes));
  std::vector<std::byte> read(kBytes, std::byte{0xff});
  ASSERT_OK(cuMemcpyDtoH_v2(read.data(), from, kBytes));
  EXPECT_EQ(device.Pages(), 3 * page_bytes);
  EXPECT_EQ(host.Pages(), 3 * page_bytes);
  EXPECT_EQ(host.Bytes(), device.Bytes());
  EXPECT_EQ(host.Bytes(), read);
  // Part of a page in each direction, over what was there before.
  host.Spoil();
  auto expected = host.Bytes();
  const auto source = device.Bytes();
  std::copy(source.begin(), source.end() - 24, expected.begin() + 12);
  ASSERT_OK(cuMemcpyDtoD_v2(to + 12, from, kBytes - 24));
  EXPECT_TRUE(host.Is(expected));
  ASSERT_OK(cuMemcpyHtoD_v2(to, read.data(), kBytes));
  EXPECT_TRUE(host.Is(read));
  for (const auto& [address, memory] : {std::pair{from, &device}, std::pair{to, &host}}) {
    ASSERT_OK(cuMemUnmap(address, kBytes));
    ASSERT_OK(cuMemAddressFree(address, kBytes));
  }
}

TEST_F(ApiMove, KernelGoesOnInOtherMemory) {
  constexpr std::size_t kBytes = 2 << 20;
  constexpr std::uint32_t kThreads = 32;
  std::uint32_t count = 8192;
  Memory device(CU_MEM_LOCATION_TYPE_DEVICE, kBytes);
  Memory host(CU_MEM_LOCATION_TYPE_HOST_NUMA, kBytes);
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  device.Map(address);
  void* pinned = nullptr;
  ASSERT_OK(cuMemHostAlloc(&pinned, (1 + kThreads) * 4, CU_MEMHOSTALLOC_DEVICEMAP));
  auto* stop = static_cast<std::uint32_t*>(pinned);
  std::uint32_t* passes = stop + 1;

  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, kPasses));
  ASSERT_OK(cuModuleGetFunction(&function, module, "passes"));
  void* parameters[] = {&address, &count, &stop, &passes};
  ASSERT_OK(cuLaunchKernel(function, 1, 1, 1, kThreads, 1, 1, 0, nullptr, parameters, nullptr));

  Memory* from = &device;
  Memory* to = &host;
  for (int i = 0; i < 5; ++i) {
    // A word that is looked at goes on in each memory in turn.
    const std::uint32_t before = from->words()[count - 1];
    while (from->words()[count - 1] == before) sched_yield();
    Freeze(Frozen::kAll);
    const auto still = from->Bytes();
    ASSERT_EQ(Peer("copy", std::to_string(kBytes), {from->file(), to->file()}).Line(), "copied");
    EXPECT_TRUE(from->Is(still));
    EXPECT_TRUE(to->Is(still));
    // From a thread without a context, while the kernel stands still in the middle.
    std::thread([&] {
      EXPECT_OK(cuMemUnmap(address, kBytes));
      to->Map(address);
    }).join();
    from->Spoil();
    Freeze(Frozen::kNothing);
    std::swap(from, to);
  }
  std::atomic_ref(*stop).store(1);
  ASSERT_OK(cuCtxSynchronize());
  for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(from->words()[i], passes[i % kThreads]) << i;
  EXPECT_OK(cuMemUnmap(address, kBytes));
  EXPECT_OK(cuMemAddressFree(address, kBytes));
  EXPECT_OK(cuMemFreeHost(pinned));
}

// From the moment at which SetFrozen has returned, and not from when the copy has ended.
TEST_F(ApiMove, FrozenCopiesTouchNothing) {
  constexpr std::size_t kBytes = 8 << 20;
  constexpr std::size_t kLast = kBytes / 4 - 1;
  Memory source(CU_MEM_LOCATION_TYPE_DEVICE, kBytes);
  Memory target(CU_MEM_LOCATION_TYPE_DEVICE, kBytes);
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAddressReserve(&address, 2 * kBytes, 0, 0, 0));
  source.Map(address);
  target.Map(address + kBytes);
  ASSERT_OK(cuMemsetD32Async(address, 1, kBytes / 4, nullptr));
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK(cuMemcpyDtoDAsync_v2(address + kBytes, address, kBytes, nullptr));
    ASSERT_OK(cuMemsetD32Async(address + kBytes, 2, kBytes / 4, nullptr));
  }
  const auto busy = [] { return cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY; };
  int in_the_middle = 0;
  for (int i = 0; i < 20 && busy(); ++i) {
    while (target.words()[0] == target.words()[kLast] && busy()) sched_yield();
    Freeze(Frozen::kAll);
    const auto still = target.Bytes();
    in_the_middle += target.words()[0] != target.words()[kLast];
    ASSERT_TRUE(target.Is(still));
    Freeze(Frozen::kNothing);
    while (target.Is(still) && busy()) sched_yield();
  }
  ASSERT_OK(cuCtxSynchronize());
  EXPECT_GT(in_the_middle, 0);
  for (std::size_t i = 0; i <= kLast; ++i) ASSERT_EQ(target.words()[i], 2u) << i;
  EXPECT_OK(cuMemUnmap(address, 2 * kBytes));
  EXPECT_OK(cuMemAddressFree(address, 2 * kBytes));
}

}  // namespace
}  // namespace tessera::soft
