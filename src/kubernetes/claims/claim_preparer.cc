#include "kubernetes/claims/claim_preparer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/claims/vgpu_terms.h"
#include "kubernetes/containers/key.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/objects/no_answer.h"

namespace tessera::kubernetes {

using client::Field;
using client::TextField;

namespace {

// Of a vGPU: eight of them and a key fit into TESSERA_VGPU, of which a program sends 511 bytes.
constexpr std::size_t kLongestName = 58;

std::vector<ReadyDevice> Ready(const std::string& uid, const PreparedClaim& claim) {
  std::vector<ReadyDevice> ready;
  for (const PreparedDevice& device : claim.devices) ready.push_back({device, ClaimCdi::IdOf(uid, claim)});
  return ready;
}

Result<std::vector<Json>> AllTerms(const Claim& claim) {
  std::vector<Json> terms;
  for (const AllocatedDevice& device : claim.devices) {
    auto said = TermsOf(claim, device);
    if (!said) return std::unexpected(said.error());
    terms.push_back(std::move(said->fields));
  }
  return terms;
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
    : setup_(std::move(setup)),
      server_(server),
      daemon_(setup_.containers.run_dir),
      cdi_({.folder = setup_.cdi_dir, .containers = setup_.containers}, daemon_),
      checkpoint_(std::move(checkpoint)) {}

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
    if (prepared && prepared->complete && cdi_.Exists(uid)) return Ready(uid, *prepared);
  }
  auto claim = Read(namespace_name, name, uid);
  if (!claim) return std::unexpected(claim.error());
  const std::lock_guard lock(mutex_);
  (void)SweepOnce();  // if tesserad does not answer, what follows says so
  const PreparedClaim* const before = checkpoint_.Find(uid);
  const bool in_use = before && before->complete;  // its pods may run: only its file was lost
  if (before && !before->change.empty()) {
    if (auto added = AddChange(before->change, *claim); !added) return std::unexpected(added.error());
  }
  auto made = Make(*claim);
  if (!made && !in_use) {
    if (auto undone = Undo(uid); !undone)
      return Fail(made.error().code, made.error().Text() + "; nor could it be taken back: " + undone.error().Text());
  }
  return made;
}

// That of vGPUs that are there already, as far as anything knows it; else a new one.
Result<std::string> ClaimPreparer::KeyOf(const std::string& uid) const {
  if (const PreparedClaim* const before = checkpoint_.Find(uid)) return before->key;
  return KeyFor(cdi_.File(uid));
}

// The checkpoint names the vGPUs before they are made.
Result<std::vector<ReadyDevice>> ClaimPreparer::Make(const Claim& claim) {
  auto key = KeyOf(claim.uid);
  if (!key) return std::unexpected(key.error());
  PreparedClaim prepared{
      .namespace_name = claim.namespace_name, .name = claim.name, .key = std::move(*key), .change = {}, .devices = {}};
  const PreparedClaim* const before = checkpoint_.Find(claim.uid);
  const bool known = before || cdi_.Exists(claim.uid);  // vGPUs that are there have this key
  if (before) {
    prepared.change = before->change;
    prepared.complete = before->complete;  // if this fails, its pods run all the same
  }
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
  for (std::size_t i = 0; i < claim.devices.size(); ++i) {
    auto terms = TermsOf(claim, claim.devices[i]);
    if (!terms) return std::unexpected(terms.error());
    prepared.kernel_gate = prepared.kernel_gate || terms->kernel_gate;
    Json& fields = terms->fields;
    if (prepared.devices.size() > 1) fields["gang"] = prepared.devices.front().vgpu;
    if (!prepared.key.empty()) fields["key"] = prepared.key;
    if (auto made =
            MakeVGpu(claim.namespace_name, claim.devices[i], prepared.devices[i].vgpu, known, std::move(fields));
        !made)
      return std::unexpected(made.error());
  }
  if (auto written = cdi_.Write(claim.uid, prepared); !written) return std::unexpected(written.error());
  prepared.complete = true;
  if (auto put = checkpoint_.Put(claim.uid, prepared); !put) return std::unexpected(put.error());
  return Ready(claim.uid, prepared);
}

Result<void> ClaimPreparer::MakeVGpu(const std::string& namespace_name, const AllocatedDevice& device,
                                     const std::string& vgpu, bool known, Json fields) {
  const auto gpus = daemon_.Get("/v1/gpus");
  if (!gpus) return std::unexpected(gpus.error());
  std::string uuid;
  for (const Json& gpu : Field(*gpus, "gpus")) {
    if (DeviceNameOf(TextField(gpu, "uuid")) == device.device) uuid = TextField(gpu, "uuid");
  }
  if (uuid.empty()) return Fail(ENOENT, fmt::format("GPU {} is not on this node", device.device));
  // A driver that was killed may have made it.
  const auto before = daemon_.Get("/v1/vgpus/" + vgpu);
  const bool ours = before && Field(*before, "uid") == getuid();
  if (ours && known && TextField(*before, "gpu_uuid") == uuid) {
    fields.erase("key");
    return NoAnswer(daemon_.Patch("/v1/vgpus/" + vgpu + "?wait=false", fields));
  }
  // One of another GPU or user has no programs of this claim. One whose key is lost may have.
  if (before) {
    const char* const force = ours && !known ? "" : "?force=1";
    if (auto removed = daemon_.Delete("/v1/vgpus/" + vgpu + force); !removed) return std::unexpected(removed.error());
  }
  fields["name"] = vgpu;
  fields["gpu"] = uuid;
  fields["labels"] = {{"namespace", namespace_name}};  // PodLabeler adds the others
  return NoAnswer(daemon_.Post("/v1/vgpus", fields));
}

Result<void> ClaimPreparer::Change(const std::string& uid, const std::string& config) {
  const auto before = Find(uid);
  if (!before) return Fail(ENOENT, "the claim is not prepared");
  auto claim = Read(before->namespace_name, before->name, uid);
  if (!claim) return std::unexpected(claim.error());
  Claim old = *claim;
  if (auto added = AddChange(before->change, old); !added) return added;
  if (auto added = AddChange(config, *claim); !added) return added;
  const auto old_terms = AllTerms(old), terms = AllTerms(*claim);
  if (!terms) return std::unexpected(terms.error());
  const std::lock_guard lock(mutex_);
  const PreparedClaim* const now = checkpoint_.Find(uid);
  if (!now || now->devices.size() != terms->size()) return Fail(ENOENT, "the claim is not prepared any more");
  PreparedClaim changed = *now;
  changed.change = config;
  auto done = PatchAll(changed, *terms);
  if (done) done = checkpoint_.Put(uid, std::move(changed));
  // All of a gang or none.
  if (!done && old_terms) (void)PatchAll(*now, *old_terms);
  return done;
}

// The first error; the rest stays as it is then.
Result<void> ClaimPreparer::PatchAll(const PreparedClaim& claim, const std::vector<Json>& terms) const {
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const auto answer = daemon_.Patch("/v1/vgpus/" + claim.devices[i].vgpu + "?wait=false", terms[i]);
    if (!answer) return std::unexpected(answer.error());
  }
  return {};
}

std::optional<PreparedClaim> ClaimPreparer::Find(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  const PreparedClaim* const claim = checkpoint_.Find(uid);
  return claim && claim->complete ? std::optional(*claim) : std::nullopt;
}

std::string ClaimPreparer::UidOf(const std::string& namespace_name, const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (const auto& [uid, claim] : checkpoint_.claims()) {
    if (claim.complete && claim.namespace_name == namespace_name && claim.name == name) return uid;
  }
  return {};
}

Checkpoint::Claims ClaimPreparer::ChangedClaims() {
  const std::lock_guard lock(mutex_);
  Checkpoint::Claims changed;
  for (const auto& [uid, claim] : checkpoint_.claims()) {
    if (claim.complete && !claim.change.empty()) changed[uid] = claim;
  }
  return changed;
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
  const auto vgpus = VGpusOf(uid);
  if (!vgpus) return std::unexpected(vgpus.error());
  for (const std::string& vgpu : *vgpus) {
    const auto removed = daemon_.Delete("/v1/vgpus/" + vgpu + "?force=1");
    if (!removed && removed.error().code != ENOENT) return std::unexpected(removed.error());
  }
  if (auto removed = cdi_.Remove(uid); !removed) return removed;
  return checkpoint_.Remove(uid);
}

// As the checkpoint has them; if it has not the claim, those that are there.
Result<std::vector<std::string>> ClaimPreparer::VGpusOf(const std::string& uid) const {
  std::vector<std::string> names;
  if (const PreparedClaim* const claim = checkpoint_.Find(uid)) {
    for (const PreparedDevice& device : claim->devices) names.push_back(device.vgpu);
    return names;
  }
  const auto vgpus = daemon_.Get("/v1/vgpus");
  if (!vgpus) return std::unexpected(vgpus.error());
  for (const Json& vgpu : Field(*vgpus, "vgpus")) {
    if (UidIn(TextField(vgpu, "name")) == uid) names.push_back(TextField(vgpu, "name"));
  }
  return names;
}

Result<void> ClaimPreparer::RemoveStray() {
  const std::lock_guard lock(mutex_);
  return SweepOnce();
}

Result<void> ClaimPreparer::SweepOnce() {
  if (swept_) return {};
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
  cdi_.RemoveOthers([&](const std::string& uid) { return checkpoint_.Find(uid) || kept.contains(uid); });
  swept_ = true;
  return {};
}

}  // namespace tessera::kubernetes
