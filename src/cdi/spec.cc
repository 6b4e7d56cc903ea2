#include "cdi/spec.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace tessera::cdi {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsLetterOrDigit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

const std::string& NameOf(const Device& device) { return device.name.empty() ? device.vgpu : device.name; }

// 0.3.0 is the first version that engines read; 0.5.0 the first with devices whose names begin with a digit.
const char* VersionFor(const std::vector<Device>& devices) {
  const bool digits = std::ranges::any_of(devices, [](const Device& device) { return IsDigit(NameOf(device)[0]); });
  return digits ? "0.5.0" : "0.3.0";
}

Json ToJson(const Mount& mount) {
  return {{"hostPath", mount.host},
          {"containerPath", mount.container},
          {"options", {mount.writable ? "rw" : "ro", "nosuid", "nodev", "bind"}}};
}

void AddNodes(Json& edits, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) edits["deviceNodes"].push_back({{"path", path}});
}

// The variables of `tessera run` (cli/launch/environment.h), except LD_LIBRARY_PATH: engines replace the image's own
// value, which may name directories of the image. So both libraries are preloaded, and programs find them by name: by
// glibc's own file and not by LD_PRELOAD, which would end every program of another C library.
Json CommonVariables(const SpecFacts& facts) {
  const std::string libraries = kContainerLibraries;
  Json variables = {std::string("TESSERA_RUN_DIR=") + kContainerRunDir};
  if (facts.driver) variables.push_back(std::string("LD_LIBRARY_PATH=") + kContainerDriver);
  if (facts.soft) variables.push_back("TESSERA_REAL_LIBCUDA=" + libraries + "/soft/libcuda.so.1");
  if (!facts.soft_name.empty()) variables.push_back("TESSERA_SOFT_NAME=" + facts.soft_name);
  return variables;
}

Json Hook(const SpecFacts& facts) {
  const std::string program = facts.installation.RequireGate();
  return {{"hookName", "createRuntime"}, {"path", program}, {"args", {program, facts.run_dir + "/seccomp.sock"}}};
}

Json ToJson(const Device& device) {
  const std::string names = device.vgpu + (device.key.empty() ? "" : ":" + device.key);
  Json edits = {{"env", {"TESSERA_VGPU=" + names, "CUDA_VISIBLE_DEVICES=" + device.gpu_uuid}}};
  for (const std::string& variable : device.variables) edits["env"].push_back(variable);
  AddNodes(edits, device.nodes);
  return {{"name", NameOf(device)}, {"containerEdits", std::move(edits)}};
}

}  // namespace

Result<void> CheckDeviceName(const std::string& name) {
  if (!name.empty() && IsLetterOrDigit(name.front()) && IsLetterOrDigit(name.back())) return {};
  return Fail(EINVAL, "vGPU '" + name + "' cannot be a CDI device: such names begin and end with a letter or digit",
              "make a vGPU with another name");
}

Json Spec(const SpecFacts& facts) {
  Json edits = {{"env", CommonVariables(facts)}};
  AddNodes(edits, facts.nodes);
  edits["mounts"] = {ToJson(Mount{facts.installation.Libraries(), kContainerLibraries}),
                     ToJson(Mount{facts.installation.Preload(), kContainerPreload}),
                     ToJson(Mount{facts.run_dir + "/programs", kContainerRunDir})};
  for (const Mount& mount : facts.mounts) edits["mounts"].push_back(ToJson(mount));
  if (facts.kernel_gate) edits["hooks"] = Json::array({Hook(facts)});
  Json devices = Json::array();
  for (const Device& device : facts.devices) devices.push_back(ToJson(device));
  return {{"cdiVersion", VersionFor(facts.devices)},
          {"kind", "tessera.dev/vgpu"},
          {"devices", std::move(devices)},
          {"containerEdits", std::move(edits)}};
}

}  // namespace tessera::cdi
