// Advice about vGPUs, from what they used: which is too large, which two should not meet, which fit into one GPU.
// Nobody who places a program asks for it: it is for people, and for the next time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::sched {

// What a vGPU did from one moment until the next.
struct UsedSample {
  bool there = false;        // the vGPU existed
  double duty = 0;           // part of the time in which its work ran, [0, 1]
  double waited = 0;         // part in which it had work and was kept off the GPU, for others or for its limit, [0, 1]
  double throttled = 0;      // the part of that for its limit
  std::uint64_t memory = 0;  // bytes that its programs had allocated
  bool violated = false;     // something took longer than its goal allows
};

struct MeteredGpu {
  std::string node;          // empty: this machine
  std::string gpu;           // its index or UUID
  std::string type;          // work goes at the same speed on all of a type
  std::uint64_t memory = 0;  // bytes that programs can allocate
};

struct MeteredVgpu {
  std::string name;     // unique on its node
  std::size_t gpu = 0;  // index into MeteredFleet::gpus
  double request_pct = 0;
  double limit_pct = 100;
  std::uint64_t memory_request = 0;
  std::uint64_t memory_limit = 0;
  std::string space;    // its members run at once, each on its SMs; empty: it runs alone
  double sm_pct = 100;  // of the GPU's SMs
  bool goal = false;
  std::vector<UsedSample> samples;  // as many as every other's, of the same moments
};

struct MeteredFleet {
  std::vector<MeteredGpu> gpus;
  std::vector<MeteredVgpu> vgpus;
};

// Where advice begins. Parts are of the samples, [0, 1].
struct AdviceRules {
  std::size_t least_samples = 10;  // of a vGPU; with fewer nothing is said about it
  double margin = 0.25;            // of compute, above the 99th percentile of what was used
  double memory_margin = 0.1;      // likewise of memory
  double least_gain_pct = 10;      // of a GPU's time; less is not worth a change
  std::uint64_t least_gain = 512ull << 20;
  double throttled = 0.05;  // its limit kept it off for this part of the time, or more: the limit is too small
  double busy = 0.1;        // with work in this part of a sample, or more, a vGPU is busy
  double collides =
      0.05;            // two that want more than a GPU, or miss a goal because of each other, in more of the samples
  double over = 0.01;  // a GPU may be short of time or memory in this part of the samples
  double swap = 0.05;  // part of a GPU's memory that may be in host memory
};

struct Advice {
  enum class Kind { kRequestTooLarge, kMemoryTooLarge, kLimitTooSmall, kApart, kTogether };
  struct Figure {
    std::string name;  // with its unit: "used_p99_pct"
    double value = 0;
  };
  struct Move {
    std::size_t vgpu = 0;
    std::size_t to = 0;  // index of a GPU
  };

  Kind kind = Kind::kRequestTooLarge;
  std::vector<std::size_t> vgpus;  // whom it is about
  std::string reason;              // a sentence, without a full stop
  std::vector<Figure> figures;
  // The change to apply.
  std::optional<double> request_pct;
  std::optional<double> limit_pct;
  std::optional<std::uint64_t> memory_request;
  std::vector<Move> moves;
};

// "request-too-large" and so on.
const char* NameOf(Advice::Kind kind);

// Requests that are larger than what is used, and limits that are too small. The compute request of a vGPU with a goal
// is left as it is: it is there for its latency.
std::vector<Advice> AdviseSizes(const MeteredFleet& fleet, const AdviceRules& rules);
// Two on one GPU that are in each other's way more often than by chance, or one of which misses its goal beside the
// other. Members of one space are not compared.
std::vector<Advice> AdvisePairs(const MeteredFleet& fleet, const AdviceRules& rules);
// Fewest GPUs of each type: which of them need not be there if their vGPUs go to others, where promises fit, and time
// and memory suffice but for `rules.over` of the samples. One for each GPU that is not needed.
std::vector<Advice> AdvisePacking(const MeteredFleet& fleet, const AdviceRules& rules);

// All of these; packing reckons with the changes of the requests.
std::vector<Advice> Advise(MeteredFleet fleet, const AdviceRules& rules = {});

// The part of the GPU that a vGPU would have used in a sample if no other had kept it off, [0, 1]. A member of a space
// leaves the other SMs to others.
double WantedPart(const MeteredVgpu& vgpu, const UsedSample& used);

// Whether a GPU has room for them, at one time: their promises and, by their samples, time and memory.
bool FitTogether(const MeteredFleet& fleet, const MeteredGpu& gpu, const std::vector<std::size_t>& vgpus,
                 const AdviceRules& rules);

}  // namespace tessera::sched
