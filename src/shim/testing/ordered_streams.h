// Streams of a green context, in the place of the fake driver's: which work comes before which, as events make it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cuda/cuda_abi.h"
#include "shim/load/real.h"

namespace tessera::shim {

// Puts its functions into the table, and the others back at its end. One at a time may exist. One thread at a time.
class OrderedStreams {
 public:
  using Clock = std::map<cuda::CUstream, std::uint64_t>;  // of each stream, the work that comes before

  OrderedStreams() {
    now = this;
    Put(k_cuEventCreate, &CreateEvent);
    Put(k_cuEventDestroy_v2, &DestroyEvent);
    Put(k_cuEventRecord, &Record);
    Put(k_cuStreamWaitEvent, &Wait);
    Put(k_cuStreamIsCapturing, &IsCapturing);
    Put(k_cuStreamQuery, &Query);
  }
  ~OrderedStreams() {
    for (const auto& [symbol, function] : before_) tessera_real_table[symbol] = function;
    now = nullptr;
  }
  OrderedStreams(const OrderedStreams&) = delete;

  // Gives the stream work. Returns what comes before it, itself included.
  Clock Work(cuda::CUstream stream) {
    Clock& clock = clocks_[stream];
    clock[stream] = ++given_[stream];
    return clock;
  }
  // What comes before the stream's next work.
  Clock Before(cuda::CUstream stream) { return clocks_[stream]; }

  std::set<cuda::CUstream> capturing, busy;
  std::map<cuda::CUevent, Clock> events;
  int joins = 0;                               // waits for events
  cuda::CUresult answer = cuda::CUDA_SUCCESS;  // of records

 private:
  template <typename Function>
  void Put(unsigned symbol, Function* function) {
    before_.emplace_back(symbol, std::exchange(tessera_real_table[symbol], reinterpret_cast<void*>(function)));
  }
  static cuda::CUresult CreateEvent(cuda::CUevent* event, unsigned flags) {
    EXPECT_EQ(flags, cuda::CU_EVENT_DISABLE_TIMING);
    now->events[*event = reinterpret_cast<cuda::CUevent>(now->next_ += 16)] = {};
    return cuda::CUDA_SUCCESS;
  }
  static cuda::CUresult DestroyEvent(cuda::CUevent event) {
    EXPECT_EQ(now->events.erase(event), 1u);
    return cuda::CUDA_SUCCESS;
  }
  static cuda::CUresult Record(cuda::CUevent event, cuda::CUstream stream) {
    EXPECT_FALSE(now->capturing.contains(stream));
    if (now->answer == cuda::CUDA_SUCCESS) now->events.at(event) = now->clocks_[stream];
    return now->answer;
  }
  static cuda::CUresult Wait(cuda::CUstream stream, cuda::CUevent event, unsigned) {
    EXPECT_FALSE(now->capturing.contains(stream));
    ++now->joins;
    for (const auto& [other, work] : now->events.at(event)) {
      std::uint64_t& before = now->clocks_[stream][other];
      before = std::max(before, work);
    }
    return cuda::CUDA_SUCCESS;
  }
  static cuda::CUresult IsCapturing(cuda::CUstream stream, cuda::CUstreamCaptureStatus* status) {
    *status =
        now->capturing.contains(stream) ? cuda::CU_STREAM_CAPTURE_STATUS_ACTIVE : cuda::CU_STREAM_CAPTURE_STATUS_NONE;
    return cuda::CUDA_SUCCESS;
  }
  static cuda::CUresult Query(cuda::CUstream stream) {
    return now->busy.contains(stream) ? cuda::CUDA_ERROR_NOT_READY : cuda::CUDA_SUCCESS;
  }

  static inline OrderedStreams* now = nullptr;
  std::vector<std::pair<unsigned, void*>> before_;
  std::uintptr_t next_ = 0x7000;
  std::map<cuda::CUstream, Clock> clocks_;
  std::map<cuda::CUstream, std::uint64_t> given_;
};

}  // namespace tessera::shim
