#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sched/balance/balance.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// Decides by what vGPUs did lately which of them goes to another GPU, and lets no two moves be about one cause. A pure
// function of what it is told. Times never go back. Not thread-safe.
class Balancer {
 public:
  // It is to be told what vGPUs do this often, and judges by so much of the past. When a vGPU has come to a GPU or left
  // it, what was seen there says nothing any more: nobody else leaves it or comes for this long.
  static constexpr Nanos kEvery = kSecond, kWindow = 5 * kSecond;
  // A vGPU that has moved stays for so long, and for so many times the time that its move takes: moves take a tenth of
  // its time at most. One that was sent and did not go is not sent again for kAfterFailure.
  static constexpr Nanos kLeastStay = 30 * kSecond, kAfterFailure = 600 * kSecond;
  static constexpr int kStaysPerPause = 10;
  // What is wanted of a GPU for too much time is expected to last for so long, and as long as it has lasted already.
  // What is seen of programs that wait for each other is rough: moves that are worth less than this are left. Found by
  // plans of the first hours of a record: with half of it there are half as many moves again, and no shorter waits.
  static constexpr Nanos kLeastLasts = 30 * kSecond;
  static constexpr double kLeastWorth = 20;  // seconds of a GPU

  // Figures of a vGPU until now.
  struct Seen {
    VgpuId vgpu = 0;
    std::size_t gpu = 0;
    Nanos ran = 0;             // total; of time that a GPU divides among several, its part
    Nanos had_work = 0;        // total: it ran, or waited for the GPU's time or for memory, but not for its own limit
    double most = 1;           // part of a GPU that it can use, [0, 1]
    std::uint64_t memory = 0;  // bytes that it has allocated
    Nanos pause = 0;           // it would stand still for so long if it moved
    bool moves = false;        // it is on its way to another GPU
    bool stays = false;        // it is to stay, whatever it wants
  };
  // All vGPUs, once each.
  void See(const std::vector<Seen>& vgpus, Nanos now);

  // Some GPU may be asked for too much, moves of memory included: whether it is worth the while to ask Next.
  bool AnyOver(const BalanceRules& rules) const;
  // The move that is to be begun now; nullopt: none. To be asked until there is none. `ids`: of the dwellers, as many;
  // one that moves is on both GPUs.
  std::optional<Rehoming::Move> Next(std::vector<Home> homes, const std::vector<Dweller>& dwellers,
                                     const std::vector<VgpuId>& ids, BalanceRules rules, Nanos now);

  // The part of its GPU's time that the vGPU wants, as far as is known.
  double WantedOf(VgpuId vgpu) const;

 private:
  struct Sample {
    Nanos at = 0, ran = 0, had_work = 0;
  };
  struct Known {
    Seen seen;
    std::deque<Sample> samples;  // on this GPU; the oldest is about kWindow old
    double wanted = 0;           // by its samples; before there are two of them, as on the GPU before
    Nanos stays_until = 0;
    bool sent = false;
  };

  void Note(Known& known, const Seen& seen, Nanos now);
  void NoteOver(Nanos now);
  std::map<std::size_t, double> Asked() const;  // of GPUs, as parts of their time

  std::map<VgpuId, Known> vgpus_;
  std::map<std::size_t, Nanos> changed_;     // GPUs: when a vGPU last came or went
  std::map<std::size_t, Nanos> over_since_;  // those that are asked for too much time
};

}  // namespace tessera::sched
