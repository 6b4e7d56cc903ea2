#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/json.h"
#include "plan/gpus/gpu_model.h"

namespace tessera::cli {

// Speeds of two programs in a space, each on half of the SMs.
struct PairFigures {
  double alone = 0;              // one of them, while the other is not there
  double first = 0, second = 0;  // both at once

  // The mean of both, as a part of the speed alone.
  double Part() const { return (first + second) / 2 / alone; }
};

// Result of a measurement of a GPU. A figure that is not there could not be measured; `missing` says why.
struct GpuFigures {
  std::string device;
  std::string driver;
  std::string date;  // 2026-11-26
  bool soft = false;
  std::uint64_t memory = 0;   // bytes that vGPUs can have
  std::uint64_t context = 0;  // bytes of an idle program
  std::uint32_t sms = 0;

  std::optional<double> freeze_us, thaw_us;  // p50 of the driver's calls
  std::optional<double> switch_us;
  double slice_us = 0;                        // of the two programs by which that was measured
  std::optional<double> out_per_s, in_per_s;  // bytes, to the host and back
  double bandwidth = 0;                       // bytes a second that sweeps read and write, on all SMs
  std::optional<PairFigures> compute;         // kernels a second
  std::optional<PairFigures> sweeps;          // bytes a second
  std::vector<std::string> missing;           // sentences
};

// The time of a switch between two programs that share the GPU by slices of this length, from their speeds together and
// the speed of one alone. Never below 0.
double SwitchMicroseconds(double slice_us, double alone, double together);

// The model of such a GPU; what was not measured is as in GpuModel's defaults. The soft GPU's is called "soft".
plan::GpuModel ModelOf(const GpuFigures& figures);
// Sentences about the model for its file: what was not measured, and how it fits what was.
std::vector<std::string> RemarksOn(const GpuFigures& figures);

// "h100-80gb-hbm3" for "NVIDIA H100 80GB HBM3".
std::string ModelName(const std::string& device);

// Other users of the GPU, by the answer to GET /v1/processes: "python (1234), 4711". Empty: nobody.
std::string OthersOn(const client::Json& processes, unsigned gpu);

}  // namespace tessera::cli
