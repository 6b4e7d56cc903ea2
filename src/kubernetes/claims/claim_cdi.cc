#include "kubernetes/claims/claim_cdi.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/whole_file.h"
#include "cdi/driver_files.h"
#include "cdi/soft_gpus.h"
#include "cdi/spec.h"
#include "client/json_fields.h"
#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {

using client::BoolField;
using client::Field;
using client::Json;
using client::NumberField;
using client::TextField;

namespace {

constexpr const char* kKind = "tessera.dev/vgpu";
constexpr std::string_view kPrefix = "tessera.dev-claim_", kSuffix = ".json";

std::string DeviceOf(const std::string& uid, const PreparedClaim& claim) {
  return claim.devices.size() == 1 ? claim.devices.front().vgpu : "claim-" + uid;
}

// Programs of a space speak to its MPS server by its pipes and by shared memory. The folder and not the pipes, because
// the server makes them anew.
Result<void> AddSpace(const client::ApiClient& daemon, const Json& vgpu, cdi::SpecFacts& facts, cdi::Device& device) {
  const std::string name = TextField(vgpu, "space");
  const auto space = daemon.Get("/v1/spaces/" + name);
  if (!space) return std::unexpected(space.error());
  const std::string pipes = TextField(*space, "pipe_directory");
  const std::string folder = std::filesystem::path(pipes).parent_path();
  if (folder.empty()) return Fail(EPROTO, "space " + name + " has no directory for its pipes");
  const double percent = BoolField(vgpu, "sm_reserved") ? 100 : NumberField(vgpu, "sm_limit_pct");
  device.variables = {"CUDA_MPS_PIPE_DIRECTORY=" + pipes,
                      fmt::format("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={:g}", percent)};
  facts.mounts.push_back({.host = folder, .container = folder, .writable = true});
  facts.mounts.push_back({.host = "/dev/shm", .container = "/dev/shm", .writable = true});
  return {};
}

}  // namespace

std::string ClaimCdi::IdOf(const std::string& uid, const PreparedClaim& claim) {
  return std::string(kKind) + "=" + DeviceOf(uid, claim);
}

std::string ClaimCdi::File(const std::string& uid) const {
  return fmt::format("{}/{}{}{}", setup_.folder, kPrefix, uid, kSuffix);
}

bool ClaimCdi::Exists(const std::string& uid) const { return access(File(uid).c_str(), F_OK) == 0; }

Result<void> ClaimCdi::Write(const std::string& uid, const PreparedClaim& claim) const {
  const auto health = daemon_.Get("/healthz");
  if (!health) return std::unexpected(health.error());
  cdi::SpecFacts facts{.installation = Installation::Find(), .run_dir = setup_.run_dir, .devices = {}};
  cdi::Device device{
      .vgpu = {}, .key = claim.key, .gpu_uuid = {}, .name = DeviceOf(uid, claim), .nodes = {}, .variables = {}};
  for (const PreparedDevice& each : claim.devices) {
    const auto vgpu = daemon_.Get("/v1/vgpus/" + each.vgpu);
    if (!vgpu) return std::unexpected(vgpu.error());
    const char* const comma = device.vgpu.empty() ? "" : ",";
    device.vgpu += comma + each.vgpu;
    device.gpu_uuid += comma + TextField(*vgpu, "gpu_uuid");
    if (!TextField(*vgpu, "space").empty()) {
      if (auto added = AddSpace(daemon_, *vgpu, facts, device); !added) return added;
    }
  }
  facts.kernel_gate = claim.kernel_gate;
  facts.devices.push_back(std::move(device));
  Result<void> added;
  if (BoolField(*health, "soft")) {
    struct stat socket{};
    if (stat((setup_.run_dir + "/programs/client.sock").c_str(), &socket) != 0)
      return FailErrno("tesserad has no socket for containers in " + setup_.run_dir);
    const char* const soft_name = std::getenv("TESSERA_SOFT_NAME");
    added = cdi::AddSoftGpus(socket.st_uid, soft_name ? soft_name : "", facts);
  } else if (setup_.driver) {
    added = cdi::AddDriver(facts);
  }
  if (!added) return added;
  return ReplaceFile(File(uid), cdi::Spec(facts).dump(2) + "\n", 0600, "make room there; the kubelet asks again");
}

Result<void> ClaimCdi::Remove(const std::string& uid) const {
  if (unlink(File(uid).c_str()) != 0 && errno != ENOENT) return FailErrno("cannot remove " + File(uid));
  return {};
}

void ClaimCdi::RemoveOthers(const std::function<bool(const std::string& uid)>& keep) const {
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(setup_.folder, error)) {
    const std::string name = file.path().filename();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const std::string uid = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    if (IsUid(uid) && !keep(uid)) unlink(file.path().c_str());
  }
}

std::string ClaimCdi::KeyIn(const std::string& uid) const {
  constexpr std::string_view kVariable = "TESSERA_VGPU=";
  std::ifstream file(File(uid));
  const Json spec = Json::parse(file, nullptr, false);
  for (const Json& device : Field(spec, "devices")) {
    for (const Json& variable : Field(Field(device, "containerEdits"), "env")) {
      const std::string text = variable.is_string() ? variable.get<std::string>() : "";
      const std::size_t colon = text.find(':');
      if (text.starts_with(kVariable) && colon != text.npos) return text.substr(colon + 1);
    }
  }
  return {};
}

}  // namespace tessera::kubernetes
