#include "cli/commands/cdi.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/whole_file.h"
#include "cdi/driver_files.h"
#include "cdi/seccomp_profile.h"
#include "cdi/soft_gpus.h"
#include "cdi/spec.h"
#include "cli/launch/daemon.h"
#include "cli/terminal/output.h"
#include "cli/vgpu/settings.h"
#include "client/api_client.h"
#include "client/json_fields.h"
#include "guard/request/requests.h"

namespace tessera::cli {
using client::ApiClient;
using client::BoolField;
using client::Field;
using client::Json;
using client::TextField;

namespace {

cdi::Device DeviceOf(const Json& vgpu) {
  return {.vgpu = TextField(vgpu, "name"), .gpu_uuid = TextField(vgpu, "gpu_uuid"), .nodes = {}};
}

Result<std::vector<cdi::Device>> NamedDevices(const ApiClient& client, const std::vector<std::string>& names) {
  std::vector<cdi::Device> devices;
  for (const std::string& name : names) {
    if (auto fits = CheckName(name); !fits) return std::unexpected(fits.error());
    if (auto fits = cdi::CheckDeviceName(name); !fits) return std::unexpected(fits.error());
    const auto vgpu = client.Get("/v1/vgpus/" + name);
    if (!vgpu) return std::unexpected(vgpu.error());
    devices.push_back(DeviceOf(*vgpu));
  }
  return devices;
}

Result<std::vector<cdi::Device>> LastingDevices(const ApiClient& client) {
  const auto answer = client.Get("/v1/vgpus");
  if (!answer) return std::unexpected(answer.error());
  std::vector<cdi::Device> devices;
  for (const Json& vgpu : Field(*answer, "vgpus")) {
    if (BoolField(vgpu, "ephemeral")) continue;
    if (auto fits = cdi::CheckDeviceName(TextField(vgpu, "name")); !fits) {
      std::fprintf(stderr, "tessera: skipped: %s\n", fits.error().Text().c_str());
      continue;
    }
    devices.push_back(DeviceOf(vgpu));
  }
  if (devices.empty()) return Fail(ENOENT, "no vGPU to give to containers", "make one with 'tessera vgpu create'");
  return devices;
}

// The directory that containers get instead of the run directory. A daemon of an older version does not create it.
Result<struct stat> LookAtSocket(const std::string& run_dir) {
  const std::string path = run_dir + "/programs/client.sock";
  struct stat found = {};
  if (stat(path.c_str(), &found) == 0) return found;
  return FailErrno("the daemon has no socket for containers at " + path, "restart tesserad, and see its log");
}

Result<cdi::SpecFacts> GatherFacts(const Common& common, const CdiChoices& choices) {
  const ApiClient client(common.RunDirectory());
  const auto daemon = AskDaemon(client);
  if (!daemon) return std::unexpected(daemon.error());
  auto devices = choices.vgpus.empty() ? LastingDevices(client) : NamedDevices(client, choices.vgpus);
  if (!devices) return std::unexpected(devices.error());
  const auto socket = LookAtSocket(common.RunDirectory());
  if (!socket) return std::unexpected(socket.error());
  cdi::SpecFacts facts{
      .installation = Installation::Find(), .run_dir = common.RunDirectory(), .devices = std::move(*devices)};
  if (daemon->soft && choices.driver)
    return Fail(EINVAL, "the daemon manages soft GPUs, which need no NVIDIA driver", "omit --driver");
  facts.kernel_gate = choices.require_gate;
  Result<void> added;
  const char* const soft_name = std::getenv("TESSERA_SOFT_NAME");
  if (daemon->soft) added = cdi::AddSoftGpus(socket->st_uid, soft_name ? soft_name : "", facts);
  if (choices.driver) added = cdi::AddDriver(facts);
  if (!added) return std::unexpected(added.error());
  return facts;
}

// Replaces a file atomically, as an engine may read it at any time. Something else, such as /dev/stderr, is written to.
Result<void> Write(const std::string& path, const std::string& text) {
  std::error_code error;
  const std::filesystem::path file(path);
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, error))
    return Fail(ENOENT, "no such directory: " + folder.string(), "create it, or choose another --output");
  if (!std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error))
    return ReplaceFile(path, text, 0644, "choose another --output");
  if (std::filesystem::is_directory(path, error))
    return Fail(EISDIR, path + " is a directory", "name a file in it, such as " + (file / "tessera.json").string());
  std::ofstream stream(path);
  stream << text << std::flush;
  if (!stream) return FailErrno("cannot write " + path, "choose another --output");
  return {};
}

Result<int> PrintOrWrite(const Json& json, const std::string& output) {
  if (output == "-") {
    PrintJson(json);
    return 0;
  }
  if (auto written = Write(output, json.dump(2) + "\n"); !written) return std::unexpected(written.error());
  return 0;
}

}  // namespace

Result<int> GenerateCdi(const Common& common, const CdiChoices& choices) {
  const auto facts = GatherFacts(common, choices);
  if (!facts) return std::unexpected(facts.error());
  return PrintOrWrite(cdi::Spec(*facts), choices.output);
}

Result<int> WriteSeccompProfile(const Common& common, const SeccompChoices& choices) {
  std::ifstream file(choices.base);
  if (!file)
    return FailErrno("cannot read " + choices.base, "name the seccomp profile of your container engine with --base");
  const Json base = Json::parse(file, nullptr, false);
  if (base.is_discarded()) return Fail(EINVAL, choices.base + " is not JSON", "choose another --base");
  std::string names;
  for (const std::string& name : choices.vgpus) names += (names.empty() ? "" : ",") + name;
  static constexpr auto kNumbers = guard::HeldNumbers();
  auto profile = cdi::SeccompProfile(
      base, {.socket = common.RunDirectory() + "/seccomp.sock", .vgpus = names, .numbers = kNumbers});
  if (!profile) return Fail(profile.error().code, choices.base + ": " + profile.error().message, profile.error().hint);
  return PrintOrWrite(*profile, choices.output);
}

}  // namespace tessera::cli
