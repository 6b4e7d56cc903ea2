// A type of GPU, as plans need to know it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/model/costs.h"

namespace tessera::plan {

struct GpuModel {
  std::string name;    // as --gpu has it: "h200"
  std::string title;   // "NVIDIA H200"
  std::string source;  // where the figures come from: measured, with date and driver; or estimated, and from what

  std::uint64_t memory = 0;  // bytes that vGPUs can have, contexts included: without memory.reserve
  std::uint32_t sms = 0;
  double bandwidth = 0;  // of its memory, bytes a second
  double speed = 1;      // of kernels, against an H200's

  SteeringCosts steering;
  TokenCosts tokens;
  MoveCosts moves;  // `context` included: bytes that each program pins

  // Several programs at once in a space: each has this part of the speed that it has alone on as many SMs, [0.5, 1], as
  // long as all together need at most the memory's bandwidth; less in proportion if they need more.
  double space_speed = 1;

  // What a simulation of such a GPU is made of; `time_by` says who divides its time.
  GpuSpec Spec(TimeBy time_by) const;
};

// The model of this name, or of a file of TOML: what has a slash or ends with .toml is a file. ENOENT: there is none;
// the hint names those that are known. Errors of a file as ParseGpuModel. Any thread.
Result<GpuModel> FindGpuModel(const std::string& name_or_file);
// Of those that need no file, in the order of the alphabet. They lie as files in share/tessera/gpus, too.
std::vector<std::string> GpuModelNames();

// EINVAL with "SOURCE:LINE: …": it is no TOML, a key is unknown or missing, or a value is outside of what it can be.
Result<GpuModel> ParseGpuModel(std::string_view text, const std::string& source);
// The text that ParseGpuModel reads, each key with what it means. `remarks` are comments at its top, one line each.
std::string FormatGpuModel(const GpuModel& model, const std::vector<std::string>& remarks = {});

}  // namespace tessera::plan
