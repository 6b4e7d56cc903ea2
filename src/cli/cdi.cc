#include "cli/cdi.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/whole_file.h"
#include "cli/api_client.h"
#include "cli/cdi_driver.h"
#include "cli/cdi_spec.h"
#include "cli/daemon.h"
#include "cli/json_fields.h"
#include "cli/output.h"
#include "cli/settings.h"

namespace tessera::cli {
namespace {

CdiDevice DeviceOf(const Json& vgpu) {
  return {.vgpu = TextField(vgpu, "name"), .gpu_uuid = TextField(vgpu, "gpu_uuid"), .nodes = {}};
}

Result<std::vector<CdiDevice>> NamedDevices(const ApiClient& client, const std::vector<std::string>& names) {
  std::vector<CdiDevice> devices;
  for (const std::string& name : names) {
    if (auto fits = CheckName(name); !fits) return std::unexpected(fits.error());
    if (auto fits = CheckCdiName(name); !fits) return std::unexpected(fits.error());
    const auto vgpu = client.Get("/v1/vgpus/" + name);
    if (!vgpu) return std::unexpected(vgpu.error());
    devices.push_back(DeviceOf(*vgpu));
  }
  return devices;
}

Result<std::vector<CdiDevice>> LastingDevices(const ApiClient& client) {
  const auto answer = client.Get("/v1/vgpus");
  if (!answer) return std::unexpected(answer.error());
  std::vector<CdiDevice> devices;
  for (const Json& vgpu : Field(*answer, "vgpus")) {
    if (BoolField(vgpu, "ephemeral")) continue;
    if (auto fits = CheckCdiName(TextField(vgpu, "name")); !fits) {
      std::fprintf(stderr, "tessera: left out: %s\n", fits.error().Text().c_str());
      continue;
    }
    devices.push_back(DeviceOf(vgpu));
  }
  if (devices.empty())
    return Fail(ENOENT, "there is no vGPU to give to containers", "make one with 'tessera vgpu create'");
  return devices;
}

// The folder that containers get instead of the run directory; a daemon of an older version does not make it.
Result<struct stat> LookAtSocket(const std::string& run_dir) {
  const std::string path = run_dir + "/programs/client.sock";
  struct stat found = {};
  if (stat(path.c_str(), &found) == 0) return found;
  return FailErrno("the daemon has no socket for containers, " + path,
                   "restart tesserad; its log says why if it is new");
}

// Soft GPUs are a file that their programs share, of the daemon's user. In a user namespace, as rootless engines make
// them, that user is root.
Result<void> AddSoftGpus(uid_t user, CdiFacts& facts) {
  const char* name = std::getenv("TESSERA_SOFT_NAME");
  facts.soft = true;
  facts.soft_name = name ? name : "";
  const auto path_for = [&](uid_t uid) {
    const std::string path = "/dev/shm/tessera-soft-" + std::to_string(uid);
    return facts.soft_name.empty() ? path : path + "-" + facts.soft_name;
  };
  const std::string host = path_for(user);
  if (!std::filesystem::exists(host))
    return Fail(ENOENT, "the soft GPU's " + host + " is not there", "set TESSERA_SOFT_NAME as the daemon has it");
  facts.mounts.push_back({host, host, true});
  if (user != 0) facts.mounts.push_back({host, path_for(0), true});
  return {};
}

Result<void> AddDriver(CdiFacts& facts) {
  const auto files = FindDriverFiles();
  if (!files) return std::unexpected(files.error());
  facts.driver = true;
  facts.nodes = files->nodes;
  facts.mounts.insert(facts.mounts.end(), files->libraries.begin(), files->libraries.end());
  for (CdiDevice& device : facts.devices) {
    const auto node = files->node_of.find(device.gpu_uuid);
    if (node == files->node_of.end())
      return Fail(ENOENT, "the driver does not know GPU " + device.gpu_uuid, "see 'nvidia-smi -L'");
    device.nodes = {node->second};
  }
  return {};
}

Result<CdiFacts> GatherFacts(const Common& common, const CdiChoices& choices) {
  const ApiClient client(common.RunDirectory());
  const auto daemon = AskDaemon(client);
  if (!daemon) return std::unexpected(daemon.error());
  auto devices = choices.vgpus.empty() ? LastingDevices(client) : NamedDevices(client, choices.vgpus);
  if (!devices) return std::unexpected(devices.error());
  const auto socket = LookAtSocket(common.RunDirectory());
  if (!socket) return std::unexpected(socket.error());
  CdiFacts facts{
      .installation = Installation::Find(), .run_dir = common.RunDirectory(), .devices = std::move(*devices)};
  if (daemon->soft && choices.driver)
    return Fail(EINVAL, "the daemon manages soft GPUs, which need no NVIDIA driver", "leave out --driver");
  Result<void> added;
  if (daemon->soft) added = AddSoftGpus(socket->st_uid, facts);
  if (choices.driver) added = AddDriver(facts);
  if (!added) return std::unexpected(added.error());
  return facts;
}

// A file whole, as an engine may read it at any time. What is no file, such as /dev/stderr, must not be replaced by
// one.
Result<void> Write(const std::string& path, const std::string& text) {
  std::error_code error;
  const std::filesystem::path file(path);
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, error))
    return Fail(ENOENT, "there is no folder " + folder.string(), "make it, or choose another --output");
  if (!std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error))
    return ReplaceFile(path, text, 0644, "choose another --output");
  if (std::filesystem::is_directory(path, error))
    return Fail(EISDIR, path + " is a folder", "name a file in it, such as " + (file / "tessera.json").string());
  std::ofstream stream(path);
  stream << text << std::flush;
  if (!stream) return FailErrno("cannot write " + path, "choose another --output");
  return {};
}

}  // namespace

Result<int> GenerateCdi(const Common& common, const CdiChoices& choices) {
  const auto facts = GatherFacts(common, choices);
  if (!facts) return std::unexpected(facts.error());
  const Json spec = CdiSpec(*facts);
  if (choices.output == "-") {
    PrintJson(spec);
    return 0;
  }
  if (auto written = Write(choices.output, spec.dump(2) + "\n"); !written) return std::unexpected(written.error());
  return 0;
}

}  // namespace tessera::cli
