#include "shim/device/reserved_sms.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/device/attachment.h"
#include "shim/gate/gate.h"
#include "shim/load/current_context.h"
#include "shim/load/green_contexts.h"
#include "shim/process/say.h"
#include "shim/session/session.h"

namespace tessera::shim {

using namespace cuda;
using wire::kAllSms;
using wire::SmPlace;

namespace {

// A green context of one place. It stays after the program has moved elsewhere, because threads may still be in it, and
// is used again if the program comes back. It takes no memory of the GPU that could be measured (H100).
struct Made {
  SmPlace place;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
};

constexpr std::size_t kMostPlaces = 64;
constexpr Nanos kAgain = kSecond;     // after the program's work did not end in time
constexpr Nanos kUnpinned = kSecond;  // before a program that no longer has streams or graphs may have all SMs again
constexpr int kTriesHome = 5;
constexpr unsigned kBetweenTriesUs = 1'000;

ForkMutex reserved_mutex;  // taken after GateKeeper's
std::vector<Made> made TESSERA_GUARDED_BY(reserved_mutex);
SmPlace place TESSERA_GUARDED_BY(reserved_mutex);  // where the SMs are; width 0: as Welcome said
SmPlace own
    TESSERA_GUARDED_BY(reserved_mutex);  // where they should be without a burst, as a daemon said last; likewise
bool bursts TESSERA_GUARDED_BY(reserved_mutex) = false;  // they are all, by sm.burst, and nothing keeps them
unsigned pins TESSERA_GUARDED_BY(reserved_mutex) = 0;
CUresult failed TESSERA_GUARDED_BY(reserved_mutex) = CUDA_SUCCESS;
Nanos again TESSERA_GUARDED_BY(reserved_mutex) = 0;        // no move before then,
Nanos burst_again TESSERA_GUARDED_BY(reserved_mutex) = 0;  // and none to all SMs before then

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

SmPlace WelcomePlace() {
  const wire::Welcome& terms = Session::Instance().Terms();
  return {.from = terms.sm_from, .width = terms.sm_limit};
}

SmPlace Place() TESSERA_REQUIRES(reserved_mutex) {
  if (place.width == 0) place = WelcomePlace();
  return place;
}

std::vector<CUdevResource> GroupsAt(CUdevice device, const SmPlace& where) {
  const std::vector<CUdevResource> all = AllGroups(device);
  std::vector<unsigned> sizes;
  for (const CUdevResource& group : all) sizes.push_back(group.sm.smCount);
  const SmGroups own = GroupsOf(where.from, where.from + where.width, sizes);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(own.first);
  return {first, first + static_cast<std::ptrdiff_t>(own.count)};
}

// How many SMs that is; 0: the place is less than one group, or the driver has no green contexts.
unsigned CountAt(CUdevice device, const SmPlace& where) {
  unsigned sum = 0;
  for (const CUdevResource& group : GroupsAt(device, where)) sum += group.sm.smCount;
  return sum;
}

// Makes the green context of a place, and has threads work in it from now on.
CUresult Make(CUdevice device, CUcontext primary, const SmPlace& where) TESSERA_REQUIRES(reserved_mutex) {
  std::vector<CUdevResource> groups = GroupsAt(device, where);
  if (groups.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  CUdevResourceDesc description = nullptr;
  CUresult result = REAL_AS(cuDevResourceGenerateDesc, CUdevResourceDesc*, CUdevResource*, unsigned)(
      &description, groups.data(), static_cast<unsigned>(groups.size()));
  if (result != CUDA_SUCCESS) return result;
  Made one{.place = where};
  result = REAL_AS(cuGreenCtxCreate, CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)(
      &one.green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
  if (result != CUDA_SUCCESS) return result;
  result = REAL_AS(cuCtxFromGreenCtx, CUcontext*, CUgreenCtx)(&one.context, one.green);
  if (result != CUDA_SUCCESS) return result;
  AddGreenContext(one.green, {.context = one.context, .primary = primary, .device = device});
  made.push_back(one);
  context_of_reserved_sms.store(one.context, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUcontext PrimaryOf(CUdevice device) {
  CUcontext primary = nullptr;
  REAL_AS(cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)(&primary, device);
  REAL_AS(cuDevicePrimaryCtxRelease_v2, CUdevice)(device);
  return primary;
}

// To there, while nothing of the program runs. The context that is for that place; null: it stays where it is, or has
// none yet.
CUcontext MoveTo(const SmPlace& wanted, CUdevice device) TESSERA_REQUIRES(reserved_mutex) {
  const auto before = std::ranges::find(made, wanted, &Made::place);
  if (before != made.end()) {
    context_of_reserved_sms.store(before->context, std::memory_order_release);
  } else if (!made.empty()) {
    if (made.size() >= kMostPlaces || Make(device, PrimaryOf(device), wanted) != CUDA_SUCCESS) return nullptr;
  }
  place = wanted;
  return context_of_reserved_sms.load(std::memory_order_relaxed);
}

// The SMs that are the vGPU's. Without a daemon nobody says.
SmPlace Own(const wire::Page& page) TESSERA_REQUIRES(reserved_mutex) {
  if (const SmPlace told = SmPlace::Of(page.sm_place.load(std::memory_order_acquire)); told.width != 0) own = told;
  if (own.width == 0) own = WelcomePlace();
  return own;
}

// From all SMs back to its own, before something is made that would keep them. Waits for the program's work, and as
// long as that may not run; if it does not end in time, because it waits for this thread, say, the program stays in all
// SMs, and the page tells.
void EndBurst() {
  Attachment::ForEach([](Attachment& each) {
    const auto move = [&] {
      const MutexLock lock(reserved_mutex);
      return std::exchange(bursts, false) ? MoveTo(Own(*each.Page()), each.Device()) : nullptr;
    };
    for (int tries = 0; tries < kTriesHome && !each.Gates().WithoutWork(move);) {
      if (!IsClosed(each.Page()->gate.load(std::memory_order_relaxed))) ++tries;
      usleep(kBetweenTriesUs);  // others want the gates, too
    }
    {
      const MutexLock lock(reserved_mutex);
      bursts = false;
    }
    ReportReservedSms(*each.Page(), each.Device());
  });
}

void TellPins() TESSERA_REQUIRES(reserved_mutex) {
  const auto tell = [count = pins](Attachment& each) { each.Page()->sm_pins.store(count, std::memory_order_relaxed); };
  Attachment::ForEach(tell);
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

CUresult EnterReservedSms() {
  if (!HasReservedSms()) return CUDA_SUCCESS;
  const CUcontext current = CurrentContext();
  if (!current || current == context_of_reserved_sms.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const MutexLock lock(reserved_mutex);
  if (failed != CUDA_SUCCESS) return failed;
  CUdevice device = -1;
  if (REAL_AS(cuCtxGetDevice, CUdevice*)(&device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
  if (std::ranges::find(made, current, &Made::context) == made.end() && current != PrimaryOf(device))
    return failed = RefuseBesideReservedSms("a context that is not the GPU's primary one");
  if (made.empty()) {
    failed = Make(device, current, Place());
    if (failed != CUDA_SUCCESS) {
      Say("the SMs of the vGPU are reserved, and the driver makes no green context for them (CUDA error %d); leave "
          "--reserve-sm out, or raise --sm",
          static_cast<int>(failed));
      return failed;
    }
    Attachment::ForEach(
        [word = Place().Word()](Attachment& each) { each.Page()->sm_taken.store(word, std::memory_order_release); });
  }
  ForgetThreadGate();
  return REAL_AS(cuCtxSetCurrent, CUcontext)(context_of_reserved_sms.load(std::memory_order_relaxed));
}

bool InReservedSms() {
  const CUcontext context = context_of_reserved_sms.load(std::memory_order_acquire);
  return context && CurrentContext() == context;
}

CUresult PinReservedSms() {
  if (!HasReservedSms()) return CUDA_SUCCESS;
  bool was_bursting;
  {
    const MutexLock lock(reserved_mutex);
    ++pins;
    was_bursting = bursts;
    if (!was_bursting) TellPins();
  }
  if (was_bursting) EndBurst();  // which tells them, too
  return EnterReservedSms();
}

void UnpinReservedSms() {
  if (!HasReservedSms()) return;
  const MutexLock lock(reserved_mutex);
  if (pins > 0 && --pins == 0) burst_again = MonotonicNow() + kUnpinned;
  TellPins();
}

void FollowReservedSms(FollowedPage& page, GateKeeper& gates, CUdevice device) {
  if (!HasReservedSms()) return;
  const bool burst = page->sm_burst.load(std::memory_order_relaxed) != 0;
  const Nanos now = MonotonicNow();
  SmPlace wanted;
  {
    const MutexLock lock(reserved_mutex);
    const SmPlace home = Own(*page.Get());
    if (pins > 0 || now < again || (burst && now < burst_again)) return;
    wanted = burst ? kAllSms : home;
    if (wanted == Place()) return;
  }
  gates.WithoutWork([&] {
    const MutexLock lock(reserved_mutex);
    const CUcontext context = pins == 0 ? MoveTo(wanted, device) : nullptr;
    if (place == wanted) bursts = burst;
    return context;
  });
  {
    const MutexLock lock(reserved_mutex);
    if (place != wanted) again = MonotonicNow() + kAgain;
  }
  ReportReservedSms(*page.Get(), device);
}

void ReportReservedSms(wire::Page& page, CUdevice device) {
  if (!HasReservedSms()) return;
  const MutexLock lock(reserved_mutex);
  page.sms.store(CountAt(device, Place()), std::memory_order_relaxed);
  page.sm_pins.store(pins, std::memory_order_relaxed);
  page.sm_taken.store(made.empty() ? 0 : Place().Word(), std::memory_order_release);
}

CUresult RefuseBesideReservedSms(const char* call) {
  Say("%s is not possible where the SMs of the vGPU are reserved; leave --reserve-sm out", call);
  return CUDA_ERROR_NOT_SUPPORTED;
}

std::vector<CUgreenCtx> ReservedGreenContexts() {
  const MutexLock lock(reserved_mutex);
  std::vector<CUgreenCtx> all;
  for (const Made& one : made) all.push_back(one.green);
  return all;
}

void ForgetReservedGreenContexts() {
  const MutexLock lock(reserved_mutex);
  made.clear();
  pins = 0;
  TellPins();
  context_of_reserved_sms.store(nullptr, std::memory_order_release);
}

}  // namespace tessera::shim
