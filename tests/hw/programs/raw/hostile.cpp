// A program that wants more than it was given, and speaks to the kernel driver itself:
//   hostile channels CLIENT disable|enable CHANNEL...   somebody's channels (numbers in C's notation): "status S"
//   hostile self LIBRARY KERNEL_US                      computes in a context of the driver's own LIBRARY, without the
//     shim, as ticker does, and is ordered about as orders.h says; beside "count" it takes
//       thaw            its own channels back onto the GPU              "thaw S"
//       slice US        a slice of so many microseconds for its groups  "slice S BEFORE AFTER" (-1: not told)
//       interleave N    a level of interleaving                         "interleave S"
//       preempt         its own groups, so that they are put in again   "preempt S"
//       memory BYTES    so many bytes by the ioctl that cuMemAlloc made  "memory GOT S"
// S is the status of the resource manager (0: ok, 0xffff: the ioctl itself failed), the worst of several calls.
#include <stdarg.h>

#include <algorithm>
#include <cinttypes>
#include <mutex>
#include <vector>

#include "orders.h"
#include "real_cuda.h"
#include "rm.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPiece = 64 * kMiB;  // cuMemAlloc of so much makes one object of its own

struct Seen {
  int fd;
  abi::Alloc call;           // as it came back; made from the short form where that was used
  std::vector<char> params;  // as they went in
};
std::mutex seen_mutex;
std::vector<Seen>& SeenAllocs() {  // made at the first call, which may come before main()
  static std::vector<Seen> seen;
  return seen;
}

abi::Alloc Widened(const abi::AllocShort& call) {
  abi::Alloc wide = {};
  wide.root = call.root;
  wide.parent = call.parent;
  wide.object = call.object;
  wide.cls = call.cls;
  wide.params = call.params;
  wide.params_bytes = call.params_bytes;
  wide.status = call.status;
  return wide;
}

abi::Alloc Read(const void* request, size_t bytes) {
  if (bytes < sizeof(abi::Alloc)) return Widened(*static_cast<const abi::AllocShort*>(request));
  return *static_cast<const abi::Alloc*>(request);
}

bool WorthKeeping(uint32_t cls) { return cls == abi::kChannelGroup || cls == abi::kMemoryLocal || abi::IsChannel(cls); }

}  // namespace

// libcuda's own calls come through here, as this program exports the symbol (-rdynamic).
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  const bool alloc = _IOC_TYPE(request) == abi::kIoctlType && _IOC_NR(request) == abi::kAlloc;
  std::vector<char> params;
  if (alloc) {
    const abi::Alloc call = Read(argument, _IOC_SIZE(request));
    if (call.cls == abi::kMemoryLocal && call.params != 0) {
      const size_t bytes = std::max<size_t>(call.params_bytes, 128);  // RM knows the size by the class where it says 0
      const char* from = reinterpret_cast<const char*>(call.params);
      params.assign(from, from + bytes);
    }
  }
  const int result = static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
  if (alloc && result == 0) {
    const abi::Alloc call = Read(argument, _IOC_SIZE(request));
    if (call.status == abi::kOk && WorthKeeping(call.cls)) {
      const std::lock_guard lock(seen_mutex);
      SeenAllocs().push_back({fd, call, std::move(params)});
    }
  }
  return result;
}

namespace {

std::vector<Seen> SeenOf(bool (*wanted)(uint32_t cls)) {
  const std::lock_guard lock(seen_mutex);
  std::vector<Seen> found;
  for (const Seen& seen : SeenAllocs()) {
    if (wanted(seen.call.cls)) found.push_back(seen);
  }
  return found;
}

std::vector<Seen> Groups() {
  return SeenOf([](uint32_t cls) { return cls == abi::kChannelGroup; });
}

uint32_t ThawSelf() {
  const RmClient rm;
  const std::vector<Seen> channels = SeenOf([](uint32_t cls) { return abi::IsChannel(cls); });
  uint32_t worst = channels.empty() ? kNoCall : uint32_t{abi::kOk};
  for (const Seen& channel : channels) {
    worst = std::max(worst, rm.Disable(false, channel.call.root, &channel.call.object, 1));
  }
  return worst;
}

int64_t SliceOf(const Seen& group) {
  uint64_t us = 0;
  const uint32_t status = RmControl(group.fd, group.call.root, group.call.object, abi::kGroupGetSlice, &us, sizeof us);
  return status == abi::kOk ? static_cast<int64_t>(us) : -1;
}

// The first group's slice before and after: the group of the compute channels is the first that a context makes.
void RaiseSlice(uint64_t us) {
  const std::vector<Seen> groups = Groups();
  uint32_t worst = groups.empty() ? kNoCall : uint32_t{abi::kOk};
  const int64_t before = groups.empty() ? -1 : SliceOf(groups.front());
  for (const Seen& group : groups) {
    uint64_t wanted = us;
    worst = std::max(
        worst, RmControl(group.fd, group.call.root, group.call.object, abi::kGroupSetSlice, &wanted, sizeof wanted));
  }
  const int64_t after = groups.empty() ? -1 : SliceOf(groups.front());
  printf("slice %#x %" PRId64 " %" PRId64 "\n", worst, before, after);
}

uint32_t ControlGroups(uint32_t command, void* params, uint32_t bytes) {
  const std::vector<Seen> groups = Groups();
  uint32_t worst = groups.empty() ? kNoCall : uint32_t{abi::kOk};
  for (const Seen& group : groups) {
    worst = std::max(worst, RmControl(group.fd, group.call.root, group.call.object, command, params, bytes));
  }
  return worst;
}

// The very call that cuMemAlloc made, again and again, under new handles; what was had is freed at the end.
void TakeMemory(uint64_t bytes) {
  const std::vector<Seen> made = SeenOf([](uint32_t cls) { return cls == abi::kMemoryLocal; });
  const auto pattern = std::find_if(made.rbegin(), made.rend(), [](const Seen& seen) {
    return seen.params.size() >= sizeof(abi::MemoryParams) &&
           reinterpret_cast<const abi::MemoryParams*>(seen.params.data())->size >= kPiece;
  });
  if (pattern == made.rend()) {
    printf("memory 0 %#x\n", kNoCall);
    return;
  }
  const uint64_t piece = reinterpret_cast<const abi::MemoryParams*>(pattern->params.data())->size;
  std::vector<uint32_t> had;
  uint32_t status = abi::kOk;
  while (had.size() * piece < bytes) {
    std::vector<char> params = pattern->params;  // RM writes into them
    uint32_t object = 0xbadc0000 + static_cast<uint32_t>(had.size());
    status = RmAlloc(pattern->fd, pattern->call.root, pattern->call.parent, object, abi::kMemoryLocal, params.data(),
                     pattern->call.params_bytes);
    if (status != abi::kOk) break;
    had.push_back(object);
  }
  for (uint32_t object : had) RmFree(pattern->fd, pattern->call.root, pattern->call.parent, object);
  printf("memory %" PRIu64 " %#x\n", had.size() * piece, status);
}

void Obey(const char* line) {
  unsigned long long number = 0;
  if (strcmp(line, "thaw") == 0) {
    printf("thaw %#x\n", ThawSelf());
  } else if (sscanf(line, "slice %llu", &number) == 1) {
    RaiseSlice(number);
  } else if (sscanf(line, "interleave %llu", &number) == 1) {
    uint32_t level = static_cast<uint32_t>(number);
    printf("interleave %#x\n", ControlGroups(abi::kGroupSetInterleave, &level, sizeof level));
  } else if (strcmp(line, "preempt") == 0) {
    struct {
      uint8_t wait, own_timeout;
      uint32_t timeout_us;
    } params = {1, 1, 500'000};
    printf("preempt %#x\n", ControlGroups(abi::kGroupPreempt, &params, sizeof params));
  } else if (sscanf(line, "memory %llu", &number) == 1) {
    TakeMemory(number);
  } else {
    printf("unknown order %s\n", line);
  }
}

int Compute(const char* library, double kernel_us) {
  const RealCuda real(library);
  RealContext(real);
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  std::string kernels(self, length > 0 ? static_cast<size_t>(length) : 0);
  kernels = kernels.substr(0, kernels.rfind('/') + 1) + "kernels.ptx";
  CUmodule module;
  CUfunction step;
  REAL(real, cuModuleLoad, &module, kernels.c_str());
  REAL(real, cuModuleGetFunction, &step, module, "Step");
  CUdeviceptr piece, words, told;
  REAL(real, cuMemAlloc, &piece, kPiece);
  REAL(real, cuMemAlloc, &words, kMiB);
  REAL(real, cuMemsetD32, words, 0, kMiB / 4);
  void* host = nullptr;
  REAL(real, cuMemHostAlloc, &host, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
  memset(host, 0, 4096);
  REAL(real, cuMemHostGetDevicePointer, &told, host, 0);
  orders_gpu_count = static_cast<const volatile unsigned*>(host);
  orders_other = Obey;
  TakeOrders(Groups().size());
  // About 3 ns a step on a GPU of today; the exact length does not matter here.
  unsigned steps = static_cast<unsigned>(kernel_us * 300);
  void* arguments[] = {&words, &steps, &told};
  while (!OrderedToEnd()) {
    for (int i = 0; i < 4; ++i) REAL(real, cuLaunchKernel, step, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr);
    REAL(real, cuCtxSynchronize);
  }
  return ReportDone(1);
}

int AttackChannels(int argc, char** argv) {
  const RmClient rm;
  const uint32_t client = static_cast<uint32_t>(strtoul(argv[2], nullptr, 0));
  const bool disable = strcmp(argv[3], "disable") == 0;
  std::vector<uint32_t> channels;
  for (int i = 4; i < argc; ++i) channels.push_back(static_cast<uint32_t>(strtoul(argv[i], nullptr, 0)));
  printf("status %#x\n", rm.Disable(disable, client, channels.data(), static_cast<unsigned>(channels.size())));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 5 && strcmp(argv[1], "channels") == 0) return AttackChannels(argc, argv);
  if (argc >= 4 && strcmp(argv[1], "self") == 0) {
    WithoutShim(argv);
    return Compute(argv[2], atof(argv[3]));
  }
  return 2;
}
