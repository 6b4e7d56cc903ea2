#include "soft/device/context.h"

#include <set>
#include <vector>

#include "base/mutex.h"
#include "soft/device/address_map.h"
#include "soft/device/array.h"
#include "soft/device/green_context.h"
#include "soft/device/heap.h"
#include "soft/device/host_memory.h"
#include "soft/exec/engine.h"
#include "soft/shared/mps_servers.h"

namespace tessera::soft {
namespace {

using namespace cuda;

std::atomic<std::uint64_t> next_context_id = 1;

// All contexts there ever were. Never destroyed, like them.
struct Registry {
  Mutex mutex;
  std::set<Context*> known TESSERA_GUARDED_BY(mutex);
};

Registry& TheRegistry() {
  static Registry& registry = *new Registry;
  return registry;
}

thread_local std::vector<Current> current_stack;

constexpr std::array<std::size_t, CU_LIMIT_MAX> kDefaultLimits = [] {
  std::array<std::size_t, CU_LIMIT_MAX> limits = {};
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  return limits;
}();

}  // namespace

Context::Context(Device& device) : device_(device) {
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  registry.known.insert(this);
}

Context::~Context() = default;

CUresult Context::Open(unsigned flags) {
  if (!device_.Charge(device_.spec().context_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  device_.state().AddContexts(device_.shared_index(), 1);
  id_ = next_context_id++;
  flags_ = flags;
  limits_ = kDefaultLimits;
  sticky_ = CUDA_SUCCESS;
  heap_ = std::make_unique<Heap>(device_, this);
  engine_ = std::make_unique<Engine>(*this);
  open_ = true;
  return CUDA_SUCCESS;
}

const std::shared_ptr<Heap>& Context::code_heap() { return engine_->heap(); }

void Context::Close() {
  if (!open_.exchange(false)) return;
  engine_.reset();
  ForgetArraysOf(*this);
  heap_.reset();
  for (const Mapping& mapping : AddressMap::Get().OfContext(this)) FreeMapping(mapping.address, mapping.kind);
  device_.state().AddContexts(device_.shared_index(), -1);
  device_.Uncharge(device_.spec().context_bytes);
}

void Context::SetSticky(CUresult fault) {
  CUresult none = CUDA_SUCCESS;
  sticky_.compare_exchange_strong(none, fault);
  FaultMpsServer(device_.state(), fault);
}

CUresult Context::sticky() const {
  const CUresult fault = sticky_;
  return fault != CUDA_SUCCESS ? fault : EndedByMps(device_.state());
}

std::vector<Context*> Context::AllOpen() {
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  std::vector<Context*> open;
  for (Context* context : registry.known) {
    if (context->open()) open.push_back(context);
  }
  return open;
}

Context* Context::FromHandle(CUcontext handle) { return Current::FromHandle(handle).context; }

CUcontext Current::handle() const {
  if (green != nullptr) return green->handle();
  return context == nullptr ? nullptr : context->handle();
}

Current Current::FromHandle(CUcontext handle) {
  if (const GreenContext* green = GreenContext::FromHandle(handle))
    return {green->open ? &green->primary : nullptr, green};
  auto* context = reinterpret_cast<Context*>(handle);
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  return {.context = registry.known.contains(context) ? context : nullptr};
}

Current CurrentPlace() { return current_stack.empty() ? Current{} : current_stack.back(); }

std::uint32_t CurrentMultiprocessors() {
  const Current current = CurrentPlace();
  return current.green == nullptr ? 0 : current.green->multiprocessors;
}

void SetCurrent(const Current& current) {
  if (!current_stack.empty()) current_stack.pop_back();
  if (current.context != nullptr) current_stack.push_back(current);
}

void PushContext(const Current& current) { current_stack.push_back(current); }

Current PopContext() {
  const Current top = CurrentPlace();
  if (top.context != nullptr) current_stack.pop_back();
  return top;
}

CUresult UseCurrent(Context*& context) {
  if (const CUresult state = DriverState(); state != CUDA_SUCCESS) return state;
  context = CurrentContext();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->open()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context->sticky();
}

}  // namespace tessera::soft
