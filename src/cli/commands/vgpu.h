#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "cli/terminal/table.h"
#include "cli/vgpu/settings.h"
#include "client/json.h"

namespace tessera::cli {

// When `tessera vgpu record` asks, as texts of ParseDuration.
struct RecordTimes {
  std::string every = "10s";
  std::string lasts;  // empty: until it is ended
};

// tessera vgpu ls|show|create|set|record|rm.
Result<int> ListVgpus(const Common& common, bool quiet);
Result<int> ShowVgpu(const Common& common, const std::string& name);
Result<int> CreateVgpu(const Common& common, const std::string& name, const VgpuSettings& settings);
Result<int> SetVgpu(const Common& common, const std::string& name, const VgpuSettings& settings);
Result<int> RecordVgpus(const Common& common, const RecordTimes& times);
Result<int> RemoveVgpu(const Common& common, const std::string& name, bool force);

// The table of `ls`, from the array in GET /v1/vgpus, and the lines of `show`, from one of its elements.
Table VgpuTable(const client::Json& vgpus);
std::string VgpuText(const client::Json& vgpu);

}  // namespace tessera::cli
