#include "cli/launch/environment.h"

#include <cstdlib>

#include "cli/terminal/output.h"

namespace tessera::cli {
namespace {

std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

// The list with `first` in front, once: a `tessera run` inside another must not preload the shim twice.
std::string Prepended(const std::string& first, const char* list) {
  if (!list || !*list) return first;
  std::string rest(list);
  if (rest == first || rest.starts_with(first + ":")) return rest;
  return first + ":" + rest;
}

}  // namespace

Result<Variables> ProgramVariables(const ProgramPlace& place, const std::function<const char*(const char*)>& current) {
  const Installation& installation = place.installation;
  if (installation.prefix.find_first_of(" :") != std::string::npos) {
    return Fail(
        EINVAL,
        "the directory '" + installation.prefix + "' has a space or colon in its name, which LD_PRELOAD does not allow",
        "install Tessera in another directory");
  }
  Variables variables = {
      {"LD_PRELOAD", Prepended(installation.Shim(), current("LD_PRELOAD"))},
      {"LD_LIBRARY_PATH", Prepended(installation.Libraries(), current("LD_LIBRARY_PATH"))},
      {"TESSERA_RUN_DIR", place.run_dir},
  };
  if (!place.vgpus.empty()) variables.emplace_back("TESSERA_VGPU", Joined(place.vgpus));
  // A program may use only the GPUs of its vGPUs, so others are hidden from it.
  // An index would be one of the GPUs that the MPS server sees.
  if (!place.gpu_uuids.empty() && (!current("CUDA_VISIBLE_DEVICES") || !place.mps_pipes.empty())) {
    variables.emplace_back("CUDA_VISIBLE_DEVICES", Joined(place.gpu_uuids));
  }
  if (!place.mps_pipes.empty()) {
    variables.emplace_back("CUDA_MPS_PIPE_DIRECTORY", place.mps_pipes);
    variables.emplace_back("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", FormatPercent(place.sm_limit_pct));
  }
  if (place.soft) {
    variables.emplace_back("TESSERA_REAL_LIBCUDA", installation.SoftDriver());
    if (!place.soft_spec.empty()) variables.emplace_back("TESSERA_SOFT", place.soft_spec);
  }
  return variables;
}

Result<void> SetProgramVariables(const ProgramPlace& place) {
  const auto variables = ProgramVariables(place, [](const char* name) { return std::getenv(name); });
  if (!variables) return std::unexpected(variables.error());
  for (const auto& [name, value] : *variables) setenv(name.c_str(), value.c_str(), 1);
  return {};
}

}  // namespace tessera::cli
