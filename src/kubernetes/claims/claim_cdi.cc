#include "kubernetes/claims/claim_cdi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

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
  return std::string(kCdiKind) + "=" + DeviceOf(uid, claim);
}

std::string ClaimCdi::File(const std::string& uid) const {
  return fmt::format("{}/{}{}{}", setup_.folder, kPrefix, uid, kSuffix);
}

bool ClaimCdi::Exists(const std::string& uid) const { return access(File(uid).c_str(), F_OK) == 0; }

Result<void> ClaimCdi::Write(const std::string& uid, const PreparedClaim& claim) const {
  cdi::SpecFacts facts;
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
  return WriteCdiFile(File(uid), std::move(facts), setup_.containers, daemon_);
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

}  // namespace tessera::kubernetes
