#include "shim/order/legacy_order.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/uncancelled.h"
#include "shim/gate/capture.h"
#include "shim/load/real.h"

namespace tessera::shim {

using namespace cuda;

namespace {

__attribute__((tls_model("initial-exec"))) __thread pid_t this_thread;

// Makes `to` wait for what `from` was given so far. The event may be used again at once: a wait is for what it was
// recorded behind when the wait was submitted.
CUresult Join(CUstream from, CUstream to, CUevent* event) {
  const RelaxedCapture relaxed;
  CUresult result = CUDA_SUCCESS;
  if (!*event) result = REAL_AS(cuEventCreate, CUevent*, unsigned)(event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = REAL_AS(cuEventRecord, CUevent, CUstream)(*event, from);
  if (result == CUDA_SUCCESS) result = REAL_AS(cuStreamWaitEvent, CUstream, CUevent, unsigned)(to, *event, 0);
  return result;
}

bool HasEnded(pid_t thread) { return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH; }

}  // namespace

std::atomic<bool> LegacyOrder::any_{false};

pid_t LegacyOrder::ThisThread() {
  if (this_thread == 0) this_thread = static_cast<pid_t>(syscall(SYS_gettid));
  return this_thread;
}

// ---- streams ----

void LegacyOrder::Expect() {
  const UncancelledLock lock(mutex_);
  if (expected_++ > 0 || !streams_.empty()) return;
  any_.store(true, std::memory_order_relaxed);  // before: a submission that comes to be seen finds it
  see_each_(true);
}

void LegacyOrder::Made(CUstream stream) {
  const UncancelledLock lock(mutex_);
  --expected_;
  if (stream) streams_.emplace(stream, Stream{});
  EndIfNone();
}

void LegacyOrder::EndIfNone() {
  if (expected_ > 0 || !streams_.empty()) return;
  last_.clear();
  see_each_(false);
  any_.store(false, std::memory_order_relaxed);
}

bool LegacyOrder::Has(CUstream stream) const {
  const MutexLock lock(mutex_);
  return streams_.contains(stream);
}

void LegacyOrder::Drop(CUstream handle, const Stream& stream) {
  if (stream.event) REAL_AS(cuEventDestroy_v2, CUevent)(stream.event);
  std::erase_if(last_, [=](const auto& each) { return each.second.stream == handle; });
}

void LegacyOrder::EndStream(CUstream handle) {
  const UncancelledLock lock(mutex_);
  const auto at = streams_.find(handle);
  if (at == streams_.end()) return;
  JoinInLegacy(handle, at->second);  // if the driver has no answer to that, it has none to the program's next call
  Drop(handle, at->second);
  streams_.erase(at);
  EndIfNone();
}

void LegacyOrder::EndAll() {
  const UncancelledLock lock(mutex_);
  if (streams_.empty()) return;
  for (const auto& [handle, stream] : streams_) Drop(handle, stream);
  streams_.clear();
  EndIfNone();
}

// ---- order ----

std::uint64_t LegacyOrder::Returned(CUstream stream, std::uint64_t given) const {
  for (const auto& [thread, last] : last_)
    if (last.stream == stream) given = std::min(given, last.number - 1);
  return given;
}

CUresult LegacyOrder::JoinInLegacy(CUstream handle, Stream& stream) {
  if (stream.joined == stream.given || IsCapturing(handle)) return CUDA_SUCCESS;
  const CUresult result = Join(handle, CU_STREAM_LEGACY, &stream.event);
  if (result == CUDA_SUCCESS) stream.joined = Returned(handle, stream.given);
  return result;
}

CUresult LegacyOrder::JoinLegacyIn(CUstream handle, Stream& stream) {
  if (stream.legacy == legacy_given_) return CUDA_SUCCESS;
  const CUresult result = Join(CU_STREAM_LEGACY, handle, &stream.event);
  if (result == CUDA_SUCCESS) stream.legacy = Returned(CU_STREAM_LEGACY, legacy_given_);
  return result;
}

CUresult LegacyOrder::Before(CUstream handle, Use use, pid_t thread) {
  const UncancelledLock lock(mutex_);
  last_.erase(thread);
  std::uint64_t* given = &legacy_given_;
  if (handle == CU_STREAM_LEGACY) {
    for (auto& [each, stream] : streams_)
      if (const CUresult result = JoinInLegacy(each, stream); result != CUDA_SUCCESS) return result;
  } else {
    const auto at = streams_.find(handle);
    if (at == streams_.end() || IsCapturing(handle)) return CUDA_SUCCESS;
    if (const CUresult result = JoinLegacyIn(handle, at->second); result != CUDA_SUCCESS) return result;
    given = &at->second.given;
  }
  if (use == Use::kWork) NoteLast(thread, {handle, ++*given});
  return CUDA_SUCCESS;
}

CUresult LegacyOrder::Query(CUstream handle, pid_t thread) {
  const UncancelledLock lock(mutex_);
  last_.erase(thread);
  const auto ask = REAL_AS(cuStreamQuery, CUstream);
  CUresult result = ask(handle);
  if (handle == CU_STREAM_LEGACY) {
    for (const auto& [each, stream] : streams_)
      if (result == CUDA_SUCCESS && stream.joined != stream.given && !IsCapturing(each)) result = ask(each);
  } else if (const auto at = streams_.find(handle); at != streams_.end()) {
    if (result == CUDA_SUCCESS && at->second.legacy != legacy_given_) result = ask(CU_STREAM_LEGACY);
  }
  return result;
}

// Threads end without a word.
void LegacyOrder::NoteLast(pid_t thread, const Last& last) {
  last_.insert_or_assign(thread, last);
  if (last_.size() <= most_threads_) return;
  std::erase_if(last_, [](const auto& each) { return HasEnded(each.first); });
  most_threads_ = std::max(kThreads, 2 * last_.size());
}

}  // namespace tessera::shim
