#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/clock.h"
#include "sched/packing/balance.h"
#include "server/checkpoint/suspensions.h"
#include "server/draining/move_queue.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Moves vGPUs from a GPU that is asked for more time than it has to one that has time to spare, where rebalance.load
// says so. Which vGPU goes where says sched/packing/balance.h, by what each did in the last kWindow. Runs on the loop's
// thread.
class LoadBalancer {
 public:
  // It looks so often, and at so much of the past. From and to a GPU one vGPU moves at a time; the next one when
  // kWindow has passed since the last one came or went.
  static constexpr Nanos kEvery = kSecond, kWindow = 5 * kSecond;
  // A vGPU that has moved stays for so long, and for so many times the time that its move takes: moves take a tenth of
  // its time at most. One that could not move is not tried again for kAfterFailure.
  static constexpr Nanos kLeastStay = 30 * kSecond, kAfterFailure = 600 * kSecond;
  static constexpr int kStayPerPause = 10;

  // Does nothing until it is configured. All outlive the object; the GPUs are there already.
  LoadBalancer(EventLoop& loop, VGpuTable& table, const VGpuTable::Gpus& gpus, const Suspensions& suspensions,
               MoveQueue& queue);
  LoadBalancer(const LoadBalancer&) = delete;

  void Configure(bool on, Nanos now);
  // vGPUs that were sent away from this GPU.
  std::uint64_t SentFrom(std::uint32_t gpu) const { return sent_[gpu]; }

 private:
  // What a vGPU did until then; all but the time are totals.
  struct Sample {
    Nanos at = 0, ran = 0, had_work = 0;
  };
  struct Known {
    std::uint32_t gpu = 0;
    std::deque<Sample> samples;  // on this GPU; the oldest is about kWindow old
    double wanted = 0;           // by its samples; before there are two of them, as on the GPU before
    Nanos pause = 0;             // that its move would take
    Nanos stays_until = 0;
    bool sent = false;  // it is on its way
  };

  void Look(Nanos now);
  void Watch(GpuServer& gpu, const VGpu& vgpu, Nanos now);
  void NoteMove(GpuServer& gpu, const VGpu& vgpu, Known& known, Nanos now);
  sched::Wanted WantedBy(const VGpu& vgpu, Nanos now);
  bool SendOne(Nanos now);

  VGpuTable& table_;
  const VGpuTable::Gpus& gpus_;
  const Suspensions& suspensions_;
  MoveQueue& queue_;
  const sched::BalanceRules rules_;
  bool on_ = false;
  std::map<VgpuId, Known> vgpus_;
  std::map<std::uint32_t, Nanos> changed_;  // GPUs: when a vGPU last came or went
  std::vector<std::uint64_t> sent_;         // by GPU
  EventLoop::Timer timer_;
};

}  // namespace tessera::server
