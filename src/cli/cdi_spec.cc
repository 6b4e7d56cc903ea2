#include "cli/cdi_spec.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace tessera::cli {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsLetterOrDigit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// 0.3.0 is the first version that engines read; 0.5.0 the first with devices whose names begin with a digit.
const char* VersionFor(const std::vector<CdiDevice>& devices) {
  const bool digits = std::ranges::any_of(devices, [](const CdiDevice& device) { return IsDigit(device.vgpu[0]); });
  return digits ? "0.5.0" : "0.3.0";
}

Json ToJson(const CdiMount& mount) {
  return {{"hostPath", mount.host},
          {"containerPath", mount.container},
          {"options", {mount.writable ? "rw" : "ro", "nosuid", "nodev", "bind"}}};
}

void AddNodes(Json& edits, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) edits["deviceNodes"].push_back({{"path", path}});
}

// As `tessera run` has them (environment.h), but for LD_LIBRARY_PATH: engines put these in place of the image's own,
// and images keep libraries of theirs there. So both libraries are preloaded, by whose names all programs find them.
Json CommonVariables(const CdiFacts& facts) {
  const std::string libraries = kContainerLibraries;
  Json variables = {"LD_PRELOAD=" + libraries + "/libcuda.so.1:" + libraries + "/libnvidia-ml.so.1",
                    std::string("TESSERA_RUN_DIR=") + kContainerRunDir};
  if (facts.driver) variables.push_back(std::string("LD_LIBRARY_PATH=") + kContainerDriver);
  if (facts.soft) variables.push_back("TESSERA_REAL_LIBCUDA=" + libraries + "/soft/libcuda.so.1");
  if (!facts.soft_name.empty()) variables.push_back("TESSERA_SOFT_NAME=" + facts.soft_name);
  return variables;
}

Json ToJson(const CdiDevice& device) {
  Json edits = {{"env", {"TESSERA_VGPU=" + device.vgpu, "CUDA_VISIBLE_DEVICES=" + device.gpu_uuid}}};
  AddNodes(edits, device.nodes);
  return {{"name", device.vgpu}, {"containerEdits", std::move(edits)}};
}

}  // namespace

Result<void> CheckCdiName(const std::string& name) {
  if (!name.empty() && IsLetterOrDigit(name.front()) && IsLetterOrDigit(name.back())) return {};
  return Fail(EINVAL, "vGPU '" + name + "' cannot be a CDI device: their names begin and end with a letter or digit",
              "make one of another name");
}

Json CdiSpec(const CdiFacts& facts) {
  Json edits = {{"env", CommonVariables(facts)}};
  AddNodes(edits, facts.nodes);
  edits["mounts"] = {ToJson(CdiMount{facts.installation.Libraries(), kContainerLibraries}),
                     ToJson(CdiMount{facts.run_dir + "/programs", kContainerRunDir})};
  for (const CdiMount& mount : facts.mounts) edits["mounts"].push_back(ToJson(mount));
  Json devices = Json::array();
  for (const CdiDevice& device : facts.devices) devices.push_back(ToJson(device));
  return {{"cdiVersion", VersionFor(facts.devices)},
          {"kind", "tessera.dev/vgpu"},
          {"devices", std::move(devices)},
          {"containerEdits", std::move(edits)}};
}

}  // namespace tessera::cli
