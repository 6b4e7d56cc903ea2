#include "plan/gpus/gpu_model.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "plan/gpus/gpu_model_files.h"

namespace tessera::plan {
namespace {

std::string LowerCaseName(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string KnownGpus() {
  std::string all;
  for (const GpuModelFile& file : GpuModelFiles()) all += (all.empty() ? "" : ", ") + std::string(file.name);
  return all;
}

Result<GpuModel> ReadGpuModel(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) return FailErrno("cannot read the GPU model " + path);
  return ParseGpuModel(text.str(), path);
}

}  // namespace

GpuSpec GpuModel::Spec(TimeBy time_by) const {
  GpuSpec spec;
  spec.memory = memory;
  spec.time_by = time_by;
  spec.token_costs = tokens;
  spec.steering_costs = steering;
  spec.moves = moves;
  return spec;
}

Result<GpuModel> FindGpuModel(const std::string& name_or_file) {
  if (name_or_file.contains('/') || name_or_file.ends_with(".toml")) return ReadGpuModel(name_or_file);
  for (const GpuModelFile& file : GpuModelFiles()) {
    if (file.name == LowerCaseName(name_or_file)) return ParseGpuModel(file.text, file.name + std::string(".toml"));
  }
  return Fail(ENOENT, "no type of GPU is called '" + name_or_file + "'",
              "known are " + KnownGpus() + "; or name a file that 'tessera bench --gpu-model' wrote");
}

std::vector<std::string> GpuModelNames() {
  std::vector<std::string> names;
  for (const GpuModelFile& file : GpuModelFiles()) names.emplace_back(file.name);
  return names;
}

}  // namespace tessera::plan
