#include "shim/device/reserved_sms.h"

#include <atomic>
#include <numeric>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/gate/gate.h"
#include "shim/load/current_context.h"
#include "shim/load/green_contexts.h"
#include "shim/process/say.h"
#include "shim/session/session.h"

namespace tessera::shim {

using namespace cuda;

namespace {

ForkMutex mutex;
CUgreenCtx green TESSERA_GUARDED_BY(mutex) = nullptr;
CUresult failed TESSERA_GUARDED_BY(mutex) = CUDA_SUCCESS;

// The device's SMs in groups, of which the last has those that are too few for another one; none: the driver cannot
// split them.
std::vector<CUdevResource> AllGroups(CUdevice device) {
  CUdevResource all, rest{};
  if (REAL_AS(cuDeviceGetDevResource, CUdevice, CUdevResource*, CUdevResourceType)(
          device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS)
    return {};
  const auto split = [&](CUdevResource* groups, unsigned* count) {
    constexpr unsigned kSmallest = 1;  // the driver rounds it up
    return REAL_AS(cuDevSmResourceSplitByCount, CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*,
                   unsigned, unsigned)(groups, count, &all, &rest, 0, kSmallest) == CUDA_SUCCESS;
  };
  unsigned count = 0;
  if (!split(nullptr, &count) || count == 0) return {};
  std::vector<CUdevResource> groups(count);
  if (!split(groups.data(), &count)) return {};
  groups.resize(count);
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM) groups.push_back(rest);
  return groups;
}

// The vGPU's groups.
std::vector<CUdevResource> OwnGroups(CUdevice device) {
  const wire::Welcome& terms = Session::Instance().Terms();
  const std::vector<CUdevResource> all = AllGroups(device);
  std::vector<unsigned> sizes;
  for (const CUdevResource& group : all) sizes.push_back(group.sm.smCount);
  const SmGroups own = GroupsOf(terms.sm_from, terms.sm_from + terms.sm_limit, sizes);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(own.first);
  return {first, first + static_cast<std::ptrdiff_t>(own.count)};
}

CUresult Fail(CUresult error) TESSERA_REQUIRES(mutex) {
  failed = error;
  Say("the SMs of the vGPU are reserved, and the driver makes no green context for them (CUDA error %d); leave "
      "--reserve-sm out, or raise --sm",
      static_cast<int>(error));
  return error;
}

CUresult MakeGreen(CUdevice device, CUcontext primary) TESSERA_REQUIRES(mutex) {
  std::vector<CUdevResource> groups = OwnGroups(device);
  if (groups.empty()) return Fail(CUDA_ERROR_NOT_SUPPORTED);
  CUdevResourceDesc description = nullptr;
  CUresult result = REAL_AS(cuDevResourceGenerateDesc, CUdevResourceDesc*, CUdevResource*, unsigned)(
      &description, groups.data(), static_cast<unsigned>(groups.size()));
  if (result != CUDA_SUCCESS) return Fail(result);
  CUgreenCtx made = nullptr;
  result = REAL_AS(cuGreenCtxCreate, CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)(&made, description, device,
                                                                                         CU_GREEN_CTX_DEFAULT_STREAM);
  if (result != CUDA_SUCCESS) return Fail(result);
  GreenContext its{.primary = primary, .device = device};
  result = REAL_AS(cuCtxFromGreenCtx, CUcontext*, CUgreenCtx)(&its.context, made);
  if (result != CUDA_SUCCESS) return Fail(result);
  AddGreenContext(made, its);
  green = made;
  context_of_reserved_sms.store(its.context, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUcontext PrimaryOf(CUdevice device) {
  CUcontext primary = nullptr;
  REAL_AS(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)(&primary, device);
  REAL_AS(cuDevicePrimaryCtxRelease_v2, CUdevice)(device);
  return primary;
}

}  // namespace

SmGroups GroupsOf(unsigned from, unsigned to, const std::vector<unsigned>& sizes) {
  constexpr unsigned kAll = 10000;
  const unsigned total = std::accumulate(sizes.begin(), sizes.end(), 0u);
  // The number of groups before this place.
  const auto groups_to = [&](unsigned place) {
    std::size_t count = 0;
    for (unsigned end = 0; count < sizes.size() && (end += sizes[count]) * kAll <= place * total;) ++count;
    return count;
  };
  const std::size_t first = groups_to(from), end = groups_to(to);
  return first < end ? SmGroups{first, end - first} : SmGroups{};
}

bool HasReservedSms() { return Session::Instance().Managed() && Session::Instance().Terms().sm_reserved != 0; }

// Asked once: a thread that attaches again must not wait for the driver.
unsigned ReservedSms(CUdevice device) {
  static const unsigned count = [device] {
    unsigned sum = 0;
    for (const CUdevResource& group : OwnGroups(device)) sum += group.sm.smCount;
    return sum;
  }();
  return count;
}

CUresult EnterReservedSms() {
  if (!HasReservedSms()) return CUDA_SUCCESS;
  const CUcontext current = CurrentContext();
  if (!current || current == context_of_reserved_sms.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const MutexLock lock(mutex);
  if (failed != CUDA_SUCCESS) return failed;
  CUdevice device = -1;
  if (REAL_AS(cuCtxGetDevice, CUdevice*)(&device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
  if (current != PrimaryOf(device))
    return failed = RefuseBesideReservedSms("a context that is not the GPU's primary one");
  if (!green) {
    if (const CUresult made = MakeGreen(device, current); made != CUDA_SUCCESS) return made;
  }
  ForgetThreadGate();
  return REAL_AS(cuCtxSetCurrent, CUcontext)(context_of_reserved_sms.load(std::memory_order_relaxed));
}

bool InReservedSms() {
  const CUcontext own = context_of_reserved_sms.load(std::memory_order_acquire);
  return own && CurrentContext() == own;
}

CUresult RefuseBesideReservedSms(const char* call) {
  Say("%s is not possible where the SMs of the vGPU are reserved; leave --reserve-sm out", call);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUgreenCtx ReservedGreenContext() {
  const MutexLock lock(mutex);
  return green;
}

void ForgetReservedGreenContext() {
  const MutexLock lock(mutex);
  green = nullptr;
  context_of_reserved_sms.store(nullptr, std::memory_order_release);
}

}  // namespace tessera::shim
