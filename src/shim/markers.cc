#include "shim/markers.h"

#include <string.h>

#include <algorithm>

#include "shim/capture.h"
#include "shim/real.h"
#include "shim/say.h"

namespace tessera::shim {

using namespace cuda;

bool Markers::Prepare() {
  if (unusable_) return false;
  if (words_) return true;
  void* memory = nullptr;
  const CUresult made = REAL_AS(cuMemHostAlloc, void**, size_t, unsigned)(
      &memory, kRing * sizeof(std::uint32_t), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (made != CUDA_SUCCESS) {
    unusable_ = true;
    Say("cannot place markers on the GPU (error %d): the time of this program is bounded only coarsely", made);
    return false;
  }
  memset(memory, 0, kRing * sizeof(std::uint32_t));
  words_ = static_cast<volatile std::uint32_t*>(memory);
  return true;
}

// False: the ring is full, try again later. A stream that refuses the marker has nothing more to tell (its context
// failed, or its handle is stale): what it was given counts as ended, so that nobody waits for it.
bool Markers::Write(CUstream stream, Nanos now, std::int64_t count, bool learn) {
  if (next_ - first_ == kRing) return false;
  // Word values differ from round to round of the ring, and none is the initial zero.
  Marker& marker = ring_[next_ % kRing];
  marker = {.word = next_ + 1, .count = count, .submitted = now, .learn = learn};
  const auto address = reinterpret_cast<CUdeviceptr>(&words_[next_ % kRing]);
  const CUresult written =
      REAL_AS(cuStreamWriteValue32_v2, CUstream, CUdeviceptr, std::uint32_t, unsigned)(stream, address, marker.word, 0);
  if (written == CUDA_SUCCESS) ++next_;
  last_count_ = count;
  return true;
}

bool Markers::OnlyStream(CUstream stream) const {
  for (const auto& used : gate_.recent) {
    const CUstream other = used.load(std::memory_order_relaxed);
    if (other && other != stream) return false;
  }
  return true;
}

void Markers::Place(CUstream stream, Nanos now, bool learn) {
  RelaxedCapture relaxed;
  if (AnyCapture() || !Prepare()) return;
  const std::int64_t count = gate_.Submitted();
  if (Write(stream, now, count, learn) && OnlyStream(stream)) covered_ = count;
}

void Markers::PlaceOnAll(Nanos now, bool learn, bool own_thread) {
  RelaxedCapture relaxed;
  if (AnyCapture()) return;
  const std::int64_t count = gate_.Submitted();
  if (!Prepare()) {
    covered_ = count;
    return;
  }
  bool legacy_placed = false;
  for (auto& used : gate_.recent) {
    CUstream stream = used.load(std::memory_order_relaxed);
    if (!stream) continue;
    // Another thread's default stream cannot be named, but the legacy stream waits for it.
    if (stream == CU_STREAM_PER_THREAD && !own_thread) stream = CU_STREAM_LEGACY;
    if (stream == CU_STREAM_LEGACY && legacy_placed) continue;
    legacy_placed |= stream == CU_STREAM_LEGACY;
    if (!Write(stream, now, count, learn)) return;
  }
  // Also where no stream is left to ask, because it was destroyed or forgotten during a capture: what it was given must
  // not fill the window for ever.
  covered_ = last_count_ = count;
}

void Markers::Observe(Nanos now, Nanos target) {
  while (first_ != next_) {
    const Marker& marker = ring_[first_ % kRing];
    if (words_[first_ % kRing] != marker.word) break;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (marker.learn) window_.OnMarker(marker.submitted, now - marker.submitted, target, limited_);
    limited_ = false;
    finished_ = marker.count;
    last_reached_ = now;
    youngest_reached_ = marker.submitted;
    ++first_;
  }
  if (first_ == next_) finished_ = std::max(finished_, unusable_ ? gate_.Submitted() : last_count_);
}

void Markers::GiveUp(Nanos now) {
  if (!AnyPending()) return;
  first_ = next_;
  finished_ = last_count_;
  last_reached_ = now;
}

bool Markers::Uses(CUstream stream) const {
  return std::any_of(gate_.recent.begin(), gate_.recent.end(),
                     [=](const auto& used) { return used.load(std::memory_order_relaxed) == stream; });
}

void Markers::ForgetStream(CUstream stream) {
  for (auto& used : gate_.recent) {
    CUstream expected = stream;
    used.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
  }
}

void Markers::ForgetStreams() {
  for (auto& used : gate_.recent) used.store(nullptr, std::memory_order_relaxed);
}

void Markers::Reset() {
  ForgetStreams();
  words_ = nullptr;
  first_ = next_ = 0;
  covered_ = finished_ = last_count_ = gate_.Submitted();
  window_ = {};
  unusable_ = false;
}

}  // namespace tessera::shim
