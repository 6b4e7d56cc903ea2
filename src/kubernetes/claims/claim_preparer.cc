#include "kubernetes/claims/claim_preparer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/claims/vgpu_terms.h"
#include "kubernetes/containers/cdi_file.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/objects/no_answer.h"

namespace tessera::kubernetes {

using client::Field;
using client::TextField;

namespace {

constexpr std::size_t kLongestName = 63;  // of a vGPU
constexpr std::string_view kCdiPrefix = "tessera.dev-claim_", kCdiSuffix = ".json";

// Name of the claim's CDI device. Several vGPUs are one device, because each alone would set the same variables.
std::string CdiDeviceOf(const std::string& uid, const PreparedClaim& claim) {
  return claim.devices.size() == 1 ? claim.devices.front().vgpu : "claim-" + uid;
}

std::string CdiIdOf(const std::string& uid, const PreparedClaim& claim) {
  return std::string(kCdiKind) + "=" + CdiDeviceOf(uid, claim);
}

std::vector<ReadyDevice> Ready(const std::string& uid, const PreparedClaim& claim) {
  std::vector<ReadyDevice> ready;
  for (const PreparedDevice& device : claim.devices) ready.push_back({device, CdiIdOf(uid, claim)});
  return ready;
}

}  // namespace

std::string VGpuNameFor(const Claim& claim, std::size_t device) {
  const std::string end = "." + claim.uid + (device == 0 ? "" : fmt::format("-{}", device));
  std::string front = claim.namespace_name + "." + claim.name;
  front.resize(std::min(front.size(), kLongestName - std::min(kLongestName, end.size())));
  return front + end;
}

Result<std::unique_ptr<ClaimPreparer>> ClaimPreparer::Start(PreparerSetup setup, ApiServer& server) {
  auto checkpoint = Checkpoint::Read(setup.checkpoint);
  if (!checkpoint) return std::unexpected(checkpoint.error());
  return std::unique_ptr<ClaimPreparer>(new ClaimPreparer(std::move(setup), server, std::move(*checkpoint)));
}

ClaimPreparer::ClaimPreparer(PreparerSetup setup, ApiServer& server, Checkpoint checkpoint)
    : setup_(std::move(setup)), server_(server), daemon_(setup_.run_dir), checkpoint_(std::move(checkpoint)) {}

Result<Claim> ClaimPreparer::Read(const std::string& namespace_name, const std::string& name,
                                  const std::string& uid) const {
  const auto object =
      server_.Get(fmt::format("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", namespace_name, name));
  if (!object) return std::unexpected(object.error());
  auto claim = ReadClaim(*object, setup_.node);
  if (claim && claim->uid != uid)
    return Fail(ENOENT, fmt::format("claim {}/{} has UID {} now, and not {}", namespace_name, name, claim->uid, uid),
                "it was deleted and made again; the kubelet asks for the new one");
  return claim;
}

Result<std::vector<ReadyDevice>> ClaimPreparer::Prepare(const std::string& namespace_name, const std::string& name,
                                                        const std::string& uid) {
  if (!IsUid(uid)) return Fail(EINVAL, fmt::format("\"{}\" is no UID of a claim", uid));
  {
    const std::lock_guard lock(mutex_);
    const PreparedClaim* const prepared = checkpoint_.Find(uid);
    if (prepared && prepared->complete && access(CdiFile(uid).c_str(), F_OK) == 0) return Ready(uid, *prepared);
  }
  const auto claim = Read(namespace_name, name, uid);
  if (!claim) return std::unexpected(claim.error());
  const std::lock_guard lock(mutex_);
  const PreparedClaim* const before = checkpoint_.Find(uid);
  const bool in_use = before && before->complete;  // its pods may run: only its file was lost
  auto made = Make(*claim);
  if (!made && !in_use) {
    if (auto undone = Undo(uid); !undone)
      return Fail(made.error().code, made.error().Text() + "; nor could it be taken back: " + undone.error().Text());
  }
  return made;
}

// The checkpoint names the vGPUs before they are made.
Result<std::vector<ReadyDevice>> ClaimPreparer::Make(const Claim& claim) {
  PreparedClaim prepared{.namespace_name = claim.namespace_name, .name = claim.name, .devices = {}};
  for (std::size_t i = 0; i < claim.devices.size(); ++i) {
    const AllocatedDevice& device = claim.devices[i];
    prepared.devices.push_back({.request = device.request,
                                .pool = device.pool,
                                .device = device.device,
                                .share_id = device.share_id,
                                .vgpu = VGpuNameFor(claim, i)});
  }
  if (prepared.devices.empty())
    return Fail(EINVAL, fmt::format("claim {}/{} has no device of {} on node {}", claim.namespace_name, claim.name,
                                    kDriver, setup_.node));
  for (std::size_t i = 1; i < prepared.devices.size(); ++i) {
    const std::string& gpu = prepared.devices[i].device;
    if (std::ranges::count(prepared.devices, gpu, &PreparedDevice::device) > 1)
      return Fail(EINVAL, fmt::format("claim {}/{} has {} twice", claim.namespace_name, claim.name, gpu),
                  "ask for another GPU each: constraints: [{distinctAttribute: gpu.tessera.dev/uuid}]");
  }
  if (auto put = checkpoint_.Put(claim.uid, prepared); !put) return std::unexpected(put.error());
  const std::string gang = prepared.devices.size() > 1 ? prepared.devices.front().vgpu : "";
  for (std::size_t i = 0; i < claim.devices.size(); ++i) {
    if (auto made = MakeVGpu(claim, claim.devices[i], prepared.devices[i].vgpu, gang); !made)
      return std::unexpected(made.error());
  }
  if (auto written = WriteCdi(claim.uid, prepared); !written) return std::unexpected(written.error());
  prepared.complete = true;
  if (auto put = checkpoint_.Put(claim.uid, prepared); !put) return std::unexpected(put.error());
  return Ready(claim.uid, prepared);
}

Result<void> ClaimPreparer::MakeVGpu(const Claim& claim, const AllocatedDevice& device, const std::string& vgpu,
                                     const std::string& gang) {
  auto terms = TermsOf(claim, device);
  if (!terms) return std::unexpected(terms.error());
  if (!gang.empty()) (*terms)["gang"] = gang;
  const auto gpus = daemon_.Get("/v1/gpus");
  if (!gpus) return std::unexpected(gpus.error());
  std::string uuid;
  for (const Json& gpu : Field(*gpus, "gpus")) {
    if (DeviceNameOf(TextField(gpu, "uuid")) == device.device) uuid = TextField(gpu, "uuid");
  }
  if (uuid.empty()) return Fail(ENOENT, fmt::format("GPU {} is not on this node", device.device));
  // A driver that was killed may have made it.
  const auto before = daemon_.Get("/v1/vgpus/" + vgpu);
  if (before && TextField(*before, "gpu_uuid") == uuid)
    return NoAnswer(daemon_.Patch("/v1/vgpus/" + vgpu + "?wait=false", *terms));
  if (before) {
    if (auto removed = daemon_.Delete("/v1/vgpus/" + vgpu + "?force=1"); !removed)
      return std::unexpected(removed.error());
  }
  (*terms)["name"] = vgpu;
  (*terms)["gpu"] = uuid;
  (*terms)["labels"] = {{"namespace", claim.namespace_name}};  // PodLabeler adds the others
  return NoAnswer(daemon_.Post("/v1/vgpus", *terms));
}

std::string ClaimPreparer::CdiFile(const std::string& uid) const {
  return fmt::format("{}/{}{}{}", setup_.cdi_dir, kCdiPrefix, uid, kCdiSuffix);
}

// The name has the UID, so that engines never have an older one in their caches.
Result<void> ClaimPreparer::WriteCdi(const std::string& uid, const PreparedClaim& claim) const {
  cdi::Device device{.vgpu = {}, .gpu_uuid = {}, .name = CdiDeviceOf(uid, claim), .nodes = {}};
  for (const PreparedDevice& each : claim.devices) {
    const auto vgpu = daemon_.Get("/v1/vgpus/" + each.vgpu);
    if (!vgpu) return std::unexpected(vgpu.error());
    const char* const comma = device.vgpu.empty() ? "" : ",";
    device.vgpu += comma + each.vgpu;
    device.gpu_uuid += comma + TextField(*vgpu, "gpu_uuid");
  }
  return WriteCdiFile(CdiFile(uid), std::move(device), {.run_dir = setup_.run_dir, .driver = setup_.driver}, daemon_);
}

Result<void> ClaimPreparer::Unprepare(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  return Undo(uid);
}

Checkpoint::Claims ClaimPreparer::Claims() {
  const std::lock_guard lock(mutex_);
  return checkpoint_.claims();
}

Result<void> ClaimPreparer::Undo(const std::string& uid) {
  const PreparedClaim* const claim = checkpoint_.Find(uid);
  if (!claim) return {};
  for (const PreparedDevice& device : claim->devices) {
    const auto removed = daemon_.Delete("/v1/vgpus/" + device.vgpu + "?force=1");
    if (!removed && removed.error().code != ENOENT) return std::unexpected(removed.error());
  }
  if (unlink(CdiFile(uid).c_str()) != 0 && errno != ENOENT) return FailErrno("cannot remove " + CdiFile(uid));
  return checkpoint_.Remove(uid);
}

Result<void> ClaimPreparer::RemoveStray() {
  const std::lock_guard lock(mutex_);
  const auto vgpus = daemon_.Get("/v1/vgpus");
  if (!vgpus) return std::unexpected(vgpus.error());
  std::set<std::string> kept;
  for (const Json& vgpu : Field(*vgpus, "vgpus")) {
    const std::string name = TextField(vgpu, "name"), uid = UidIn(name);
    if (uid.empty() || checkpoint_.Find(uid)) continue;
    const auto removed = daemon_.Delete("/v1/vgpus/" + name);
    if (removed || removed.error().code == ENOENT) continue;
    if (Field(vgpu, "processes").empty()) return std::unexpected(removed.error());
    kept.insert(uid);
  }
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(setup_.cdi_dir, error)) {
    const std::string name = file.path().filename();
    if (!name.starts_with(kCdiPrefix) || !name.ends_with(kCdiSuffix)) continue;
    const std::string uid = name.substr(kCdiPrefix.size(), name.size() - kCdiPrefix.size() - kCdiSuffix.size());
    if (IsUid(uid) && !checkpoint_.Find(uid) && !kept.contains(uid)) unlink(file.path().c_str());
  }
  return {};
}

}  // namespace tessera::kubernetes
