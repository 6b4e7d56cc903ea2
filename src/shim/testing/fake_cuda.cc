#include "shim/testing/fake_cuda.h"

#include <gtest/gtest.h>
#include <string.h>

#include <algorithm>

namespace tessera::shim {

using namespace cuda;

namespace {

FakeCuda* fake = nullptr;
thread_local std::vector<CUcontext> stack;  // the last one is current

CUcontext Current() { return stack.empty() ? nullptr : stack.back(); }
CUresult NoFunction() { return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED; }

}  // namespace

struct FakeCudaCalls {
  static CUresult Init(unsigned) { return CUDA_SUCCESS; }
  static CUresult Count(int* count) { return *count = 64, CUDA_SUCCESS; }
  static CUresult Uuid(CUuuid* uuid, CUdevice device) {
    memset(uuid, 0, sizeof *uuid);
    uuid->bytes[0] = static_cast<char>(device + 1);
    return CUDA_SUCCESS;
  }
  static CUresult Attribute(int* value, CUdevice_attribute, CUdevice) { return *value = 1, CUDA_SUCCESS; }
  static CUresult CanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    return *can = 1, std::max(device, peer) < 64 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  }
  static CUresult TotalMem(std::size_t* bytes, CUdevice) { return *bytes = 16ull << 30, CUDA_SUCCESS; }
  static CUresult MemInfo(std::size_t* free, std::size_t* total) {
    *free = 15ull << 30;
    *total = 16ull << 30;
    return CUDA_SUCCESS;
  }

  // ---- contexts ----

  static CUresult Create(CUcontext* context, unsigned, CUdevice device) {
    stack.push_back(*context = fake->MakeContext(device));
    return CUDA_SUCCESS;
  }
  static CUresult Destroy(CUcontext context) {
    const MutexLock lock(fake->mutex_);
    std::erase(stack, context);
    return fake->contexts_.erase(context) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
  static CUresult GetCurrent(CUcontext* context) { return *context = Current(), CUDA_SUCCESS; }
  static CUresult SetCurrent(CUcontext context) { return FakeCuda::SetCurrent(context), CUDA_SUCCESS; }
  static CUresult Push(CUcontext context) { return stack.push_back(context), CUDA_SUCCESS; }
  static CUresult Pop(CUcontext* context) {
    *context = Current();
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  static CUresult GetDevice(CUdevice* device) {
    const MutexLock lock(fake->mutex_);
    const auto at = fake->contexts_.find(Current());
    if (at == fake->contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = at->second.device;
    return CUDA_SUCCESS;
  }
  static CUresult Retain(CUcontext* context, CUdevice device) {
    const MutexLock lock(fake->mutex_);
    if (fake->primary_uses_[device]++ == 0) {
      const auto made = reinterpret_cast<CUcontext>(fake->next_ += 16);
      fake->contexts_[made].device = device;
      fake->primary_[device] = made;
    }
    *context = fake->primary_[device];
    return CUDA_SUCCESS;
  }
  static CUresult Release(CUdevice device) {
    const MutexLock lock(fake->mutex_);
    if (fake->primary_uses_[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--fake->primary_uses_[device] == 0) fake->contexts_.erase(fake->primary_[device]);
    return CUDA_SUCCESS;
  }
  static CUresult State(CUdevice device, unsigned*, int* active) {
    const MutexLock lock(fake->mutex_);
    *active = fake->primary_uses_[device] > 0;
    return CUDA_SUCCESS;
  }

  // ---- work ----

  static CUresult Submit() {
    const MutexLock lock(fake->mutex_);
    const auto at = fake->contexts_.find(Current());
    if (at == fake->contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    ++at->second.submitted;
    if (at->second.at_once) at->second.ended = at->second.submitted;
    return CUDA_SUCCESS;
  }
  static CUresult Launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                         void**, void**) {
    return Submit();
  }
  static CUresult Copy(CUdeviceptr, const void*, std::size_t) { return Submit(); }
  static CUresult Synchronize() {
    const MutexLock lock(fake->mutex_);
    if (!fake->capturing_.empty()) fake->complaints_.push_back("waits while a stream captures");
    const auto at = fake->contexts_.find(Current());
    if (at == fake->contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    ++at->second.synchronized;
    at->second.ended = at->second.submitted;
    return CUDA_SUCCESS;
  }
  static CUresult EventCreate(CUevent* event, unsigned) {
    const MutexLock lock(fake->mutex_);
    *event = reinterpret_cast<CUevent>(fake->next_ += 16);
    fake->events_[*event] = {};
    return CUDA_SUCCESS;
  }
  static CUresult Record(CUcontext context, CUevent event) {
    const MutexLock lock(fake->mutex_);
    if (!fake->capturing_.empty()) fake->complaints_.push_back("places a marker while a stream captures");
    const auto at = fake->contexts_.find(context);
    if (at == fake->contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    if (at->second.no_markers) return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    if (at->second.broken) return CUDA_ERROR_ILLEGAL_ADDRESS;
    ++at->second.markers;
    fake->events_[event] = {.context = context, .behind = at->second.submitted};
    return CUDA_SUCCESS;
  }
  // All of a context's work is on one stream.
  static CUresult RecordOnStream(CUevent event, CUstream stream) {
    const MutexLock lock(fake->mutex_);
    ++fake->recorded_;
    if (fake->gone_.contains(stream)) fake->complaints_.push_back("records an event on a stream that is gone");
    if (fake->capturing_.contains(stream)) fake->complaints_.push_back("records an event on a stream that captures");
    const auto at = fake->contexts_.find(Current());
    if (at == fake->contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    fake->events_[event] = {.context = Current(), .behind = at->second.submitted};
    return CUDA_SUCCESS;
  }
  static CUresult EventDestroy(CUevent event) {
    const MutexLock lock(fake->mutex_);
    return fake->events_.erase(event) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  static CUresult EventSynchronize(CUevent event) {
    const MutexLock lock(fake->mutex_);
    const auto at = fake->contexts_.find(fake->events_[event].context);
    if (at == fake->contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    at->second.ended = std::max(at->second.ended, fake->events_[event].behind);
    return CUDA_SUCCESS;
  }
  static CUresult StreamContext(CUstream, CUcontext* context) {
    return *context = Current(), *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
  static CUresult Query(CUevent event) {
    const MutexLock lock(fake->mutex_);
    ++fake->queried_;
    const FakeCuda::Event& asked = fake->events_[event];
    const auto at = fake->contexts_.find(asked.context);
    if (at == fake->contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    if (at->second.broken) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (at->second.ended >= asked.behind) return CUDA_SUCCESS;
    if (at->second.ends_for == std::this_thread::get_id()) at->second.ended = at->second.submitted;
    return CUDA_ERROR_NOT_READY;
  }

  // ---- captures ----

  static CUresult Exchange(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
  static CUresult BeginCapture(CUstream stream, CUstreamCaptureMode) {
    const MutexLock lock(fake->mutex_);
    return fake->capturing_.insert(stream).second ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
  }
  static CUresult EndCapture(CUstream stream, CUgraph*) {
    const MutexLock lock(fake->mutex_);
    return fake->capturing_.erase(stream) == 1 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
  }
  static CUresult IsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    const MutexLock lock(fake->mutex_);
    *status = fake->capturing_.contains(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  static CUresult StreamDestroy(CUstream stream) {
    const MutexLock lock(fake->mutex_);
    fake->gone_.insert(stream);
    fake->capturing_.erase(stream);
    return CUDA_SUCCESS;
  }

  // ---- memory of the driver's own ----

  template <typename Word>
  static CUresult Make(Word* made) {
    const MutexLock lock(fake->mutex_);
    if (fake->fail_allocations_) return CUDA_ERROR_UNKNOWN;
    const std::uint64_t at = fake->next_ += 16;
    fake->allocations_.insert(at);
    memcpy(made, &at, sizeof *made);
    return CUDA_SUCCESS;
  }
  static CUresult Drop(std::uint64_t word) {
    const MutexLock lock(fake->mutex_);
    return fake->allocations_.erase(word) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  static CUresult Alloc(CUdeviceptr* address, std::size_t) { return Make(address); }
  static CUresult AllocPitch(CUdeviceptr* address, std::size_t* pitch, std::size_t width, std::size_t, unsigned) {
    *pitch = (width + 511) / 512 * 512;
    return Make(address);
  }
  static CUresult AllocManaged(CUdeviceptr* address, std::size_t, unsigned) { return Make(address); }
  static CUresult Advise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice, CUdevice) {
    if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION) fake->kept_on_host = {address, bytes};
    return CUDA_SUCCESS;
  }
  static CUresult AllocAsync(CUdeviceptr* address, std::size_t, CUstream) { return Make(address); }
  static CUresult FreeAsync(CUdeviceptr address, CUstream) { return Drop(address); }

  // ---- pools: what is allocated from them is memory of the driver's own ----

  static CUmemoryPool DefaultPool(CUdevice device) {
    return reinterpret_cast<CUmemoryPool>(0x50000000 + 16 * static_cast<std::uintptr_t>(device));
  }
  static CUresult GetDefaultPool(CUmemoryPool* pool, CUdevice device) {
    return *pool = DefaultPool(device), CUDA_SUCCESS;
  }
  static CUresult GetPool(CUmemoryPool* pool, CUdevice device) {
    const MutexLock lock(fake->mutex_);
    ++fake->pool_questions_;
    const auto at = fake->pools_.find(device);
    return *pool = at == fake->pools_.end() ? DefaultPool(device) : at->second, CUDA_SUCCESS;
  }
  static CUresult SetPool(CUdevice device, CUmemoryPool pool) {
    const MutexLock lock(fake->mutex_);
    return fake->pools_[device] = pool, CUDA_SUCCESS;
  }
  static CUresult PoolCreate(CUmemoryPool* pool, const CUmemPoolProps*) { return Make(pool); }
  static CUresult PoolDestroy(CUmemoryPool pool) {
    const CUresult result = Drop(reinterpret_cast<std::uint64_t>(pool));
    const MutexLock lock(fake->mutex_);
    std::erase_if(fake->pools_, [=](const auto& each) { return each.second == pool; });
    return result;
  }
  // A driver takes any handle for an address.
  static CUresult PoolAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool) % 2, 0u) << "it is no handle";
    if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
      return *static_cast<int*>(value) = 1, CUDA_SUCCESS;
    return *static_cast<std::uint64_t*>(value) = 0, CUDA_SUCCESS;
  }
  static CUresult SetPoolAttribute(CUmemoryPool, CUmemPool_attribute, void*) { return CUDA_SUCCESS; }
  static CUresult TrimPool(CUmemoryPool, std::size_t) { return CUDA_SUCCESS; }
  static CUresult SetPoolAccess(CUmemoryPool, const CUmemAccessDesc*, std::size_t) { return CUDA_SUCCESS; }
  static CUresult AllocFromPool(CUdeviceptr* address, std::size_t, CUmemoryPool, CUstream) { return Make(address); }

  static CUresult ArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR*) { return Make(array); }
  static CUresult Array3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR*) { return Make(array); }
  static CUresult MipmappedCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned) {
    return Make(array);
  }
};

FakeCuda::FakeCuda() {
  fake = this;
  for (unsigned i = 0; i < kSymbols; ++i) Put(i, &NoFunction);
  using C = FakeCudaCalls;
  Put(k_cuInit, &C::Init);
  Put(k_cuDeviceGetCount, &C::Count);
  Put(k_cuDeviceGetUuid_v2, &C::Uuid);
  Put(k_cuDeviceGetAttribute, &C::Attribute);
  Put(k_cuDeviceCanAccessPeer, &C::CanAccessPeer);
  Put(k_cuDeviceTotalMem_v2, &C::TotalMem);
  Put(k_cuMemGetInfo_v2, &C::MemInfo);
  Put(k_cuCtxCreate_v2, &C::Create);
  Put(k_cuCtxDestroy_v2, &C::Destroy);
  Put(k_cuCtxGetCurrent, &C::GetCurrent);
  Put(k_cuCtxSetCurrent, &C::SetCurrent);
  Put(k_cuCtxPushCurrent_v2, &C::Push);
  Put(k_cuCtxPopCurrent_v2, &C::Pop);
  Put(k_cuCtxGetDevice, &C::GetDevice);
  Put(k_cuDevicePrimaryCtxRetain, &C::Retain);
  Put(k_cuDevicePrimaryCtxRelease_v2, &C::Release);
  Put(k_cuDevicePrimaryCtxGetState, &C::State);
  Put(k_cuLaunchKernel, &C::Launch);
  Put(k_cuMemcpyHtoD_v2, &C::Copy);
  Put(k_cuCtxSynchronize, &C::Synchronize);
  Put(k_cuEventCreate, &C::EventCreate);
  Put(k_cuCtxRecordEvent, &C::Record);
  Put(k_cuEventQuery, &C::Query);
  Put(k_cuEventRecord, &C::RecordOnStream);
  Put(k_cuEventRecord_ptsz, &C::RecordOnStream);
  Put(k_cuEventDestroy_v2, &C::EventDestroy);
  Put(k_cuEventSynchronize, &C::EventSynchronize);
  Put(k_cuStreamGetCtx, &C::StreamContext);
  Put(k_cuThreadExchangeStreamCaptureMode, &C::Exchange);
  Put(k_cuStreamBeginCapture_v2, &C::BeginCapture);
  Put(k_cuStreamEndCapture, &C::EndCapture);
  Put(k_cuStreamIsCapturing, &C::IsCapturing);
  Put(k_cuStreamDestroy_v2, &C::StreamDestroy);
  Put(k_cuMemAlloc_v2, &C::Alloc);
  Put(k_cuMemAllocPitch_v2, &C::AllocPitch);
  Put(k_cuMemAllocManaged, &C::AllocManaged);
  Put(k_cuMemAdvise, &C::Advise);
  Put(k_cuMemAllocAsync, &C::AllocAsync);
  Put(k_cuMemAllocAsync_ptsz, &C::AllocAsync);
  Put(k_cuMemFreeAsync_ptsz, &C::FreeAsync);
  Put(k_cuMemAllocFromPoolAsync, &C::AllocFromPool);
  Put(k_cuDeviceGetDefaultMemPool, &C::GetDefaultPool);
  Put(k_cuDeviceGetMemPool, &C::GetPool);
  Put(k_cuDeviceSetMemPool, &C::SetPool);
  Put(k_cuMemPoolCreate, &C::PoolCreate);
  Put(k_cuMemPoolDestroy, &C::PoolDestroy);
  Put(k_cuMemPoolGetAttribute, &C::PoolAttribute);
  Put(k_cuMemPoolSetAttribute, &C::SetPoolAttribute);
  Put(k_cuMemPoolTrimTo, &C::TrimPool);
  Put(k_cuMemPoolSetAccess, &C::SetPoolAccess);
  Put(k_cuMemFree_v2, &C::Drop);
  Put(k_cuMemFreeAsync, &C::FreeAsync);
  Put(k_cuArrayCreate_v2, &C::ArrayCreate);
  Put(k_cuArray3DCreate_v2, &C::Array3DCreate);
  Put(k_cuArrayDestroy, &C::Drop);
  Put(k_cuMipmappedArrayCreate, &C::MipmappedCreate);
  Put(k_cuMipmappedArrayDestroy, &C::Drop);
  const pager::Driver& driver = memory.Functions();
  Put(k_cuMemAddressReserve, driver.AddressReserve);
  Put(k_cuMemAddressFree, driver.AddressFree);
  Put(k_cuMemCreate, driver.Create);
  Put(k_cuMemRelease, driver.Release);
  Put(k_cuMemMap, driver.Map);
  Put(k_cuMemUnmap, driver.Unmap);
  Put(k_cuMemSetAccess, driver.SetAccess);
  Put(k_cuMemExportToShareableHandle, driver.Export);
  Put(k_cuMemImportFromShareableHandle, driver.Import);
}

FakeCuda::~FakeCuda() {
  for (unsigned i = 0; i < kSymbols; ++i) Put(i, &NoFunction);
  fake = nullptr;
}

CUcontext FakeCuda::MakeContext(CUdevice device) {
  const MutexLock lock(mutex_);
  const auto made = reinterpret_cast<CUcontext>(next_ += 16);
  contexts_[made].device = device;
  return made;
}

void FakeCuda::SetCurrent(CUcontext context) {
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
}

void FakeCuda::End(CUcontext context) {
  const MutexLock lock(mutex_);
  contexts_[context].ended = contexts_[context].submitted;
}

void FakeCuda::EndAtOnce(CUcontext context) {
  End(context);
  const MutexLock lock(mutex_);
  contexts_[context].at_once = true;
}

void FakeCuda::TakeNoMarkers(CUcontext context) {
  const MutexLock lock(mutex_);
  contexts_[context].no_markers = true;
}

void FakeCuda::EndWhenAsked(CUcontext context) {
  const MutexLock lock(mutex_);
  contexts_[context].ends_for = std::this_thread::get_id();
}

bool FakeCuda::Works(CUcontext context) const {
  const MutexLock lock(mutex_);
  const auto at = contexts_.find(context);
  return at != contexts_.end() && at->second.ended < at->second.submitted;
}

void FakeCuda::Break(CUcontext context) {
  const MutexLock lock(mutex_);
  contexts_[context].broken = true;
}

std::uint64_t FakeCuda::Submitted(CUcontext context) const {
  const MutexLock lock(mutex_);
  const auto at = contexts_.find(context);
  return at == contexts_.end() ? 0 : at->second.submitted;
}

std::uint64_t FakeCuda::Markers(CUcontext context) const {
  const MutexLock lock(mutex_);
  const auto at = contexts_.find(context);
  return at == contexts_.end() ? 0 : at->second.markers;
}

std::uint64_t FakeCuda::Synchronized(CUcontext context) const {
  const MutexLock lock(mutex_);
  const auto at = contexts_.find(context);
  return at == contexts_.end() ? 0 : at->second.synchronized;
}

std::size_t FakeCuda::Allocations() const {
  const MutexLock lock(mutex_);
  return allocations_.size();
}

std::size_t FakeCuda::Events() const {
  const MutexLock lock(mutex_);
  return events_.size();
}

std::uint64_t FakeCuda::EventCalls() const {
  const MutexLock lock(mutex_);
  return recorded_ + queried_;
}

std::uint64_t FakeCuda::PoolQuestions() const {
  const MutexLock lock(mutex_);
  return pool_questions_;
}

CUstream FakeCuda::MakeStream() {
  const MutexLock lock(mutex_);
  return reinterpret_cast<CUstream>(next_ += 16);
}

void FakeCuda::MakeStreamAgain(CUstream stream) {
  const MutexLock lock(mutex_);
  gone_.erase(stream);
}

void FakeCuda::FailAllocations(bool fail) {
  const MutexLock lock(mutex_);
  fail_allocations_ = fail;
}

std::vector<std::string> FakeCuda::Complaints() const {
  const MutexLock lock(mutex_);
  return complaints_;
}

}  // namespace tessera::shim
