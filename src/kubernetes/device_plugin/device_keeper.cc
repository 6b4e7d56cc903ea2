#include "kubernetes/device_plugin/device_keeper.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <ranges>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/containers/key.h"
#include "kubernetes/device_plugin/node_memory.h"
#include "kubernetes/device_plugin/pod_words.h"
#include "kubernetes/device_plugin/preference.h"

namespace tessera::kubernetes {

using client::Field;
using client::TextField;

namespace {

constexpr std::string_view kFilePrefix = "tessera.dev-vgpu_", kFileSuffix = ".json";

std::string NameOf(const PodContainer& container) {
  return fmt::format("{}/{}/{}", container.namespace_name, container.pod, container.container);
}

const std::set<std::string>& IdsOf(const PodContainer& container) {
  static const std::set<std::string> kNone;
  const auto found = container.devices.find(kVGpuResource);
  return found == container.devices.end() ? kNone : found->second;
}

Result<PodContainer> OwnerOf(const std::vector<PodContainer>& listed, const std::set<std::string>& ids) {
  for (const PodContainer& container : listed) {
    if (std::ranges::includes(IdsOf(container), ids)) return container;
  }
  return Fail(
      ENOENT, fmt::format("the kubelet lists no container that has {}", fmt::join(ids, " and ")),
      fmt::format("an init container can have {} only if a container of its pod asks for as many", kVGpuResource));
}

std::unexpected<Error> InPod(const PodContainer& container, const Error& error) {
  return Fail(error.code, fmt::format("pod {}/{}: {}", container.namespace_name, container.pod, error.message),
              error.hint);
}

std::string Joined(const std::vector<ContainerVGpu>& vgpus, std::string ContainerVGpu::* field) {
  std::string all;
  for (const ContainerVGpu& vgpu : vgpus) all += (all.empty() ? "" : ",") + vgpu.*field;
  return all;
}

}  // namespace

DeviceKeeper::DeviceKeeper(KeeperSetup setup, Lister list, const ApiServer* server)
    : setup_(std::move(setup)), list_(std::move(list)), server_(server), daemon_(setup_.containers.run_dir) {}

Result<void> DeviceKeeper::Prepare(const std::set<std::string>& ids) {
  const auto vgpus = VGpusFor(ids);
  if (!vgpus) return std::unexpected(vgpus.error());
  const auto listed = list_();
  if (!listed) return std::unexpected(listed.error());
  const auto owner = OwnerOf(*listed, ids);
  if (!owner) return std::unexpected(owner.error());
  auto requests = Requests(*owner, *vgpus);
  if (!requests) return std::unexpected(requests.error());

  const MutexLock lock(mutex_);
  const auto key = KeyOf(NameOf(*owner), *vgpus);
  if (!key) return std::unexpected(key.error());
  for (Json& request : *requests) request["key"] = *key;
  if (auto removed = RemoveOthers(ids, *vgpus); !removed) return removed;
  std::vector<std::string> fresh;
  Result<void> done;
  for (const Json& request : *requests) {
    const auto made = Make(NameOf(*owner), request);
    if (!made) done = InPod(*owner, made.error());
    if (!made) break;
    if (*made) fresh.push_back(TextField(request, "name"));
  }
  if (done) done = Write(*vgpus, *key);
  if (done) return {};
  for (const std::string& vgpu : fresh) {
    made_.erase(vgpu);
    if (auto removed = Remove(vgpu, true); !removed)
      return Fail(done.error().code, done.error().Text() + "; nor could it be taken back: " + removed.error().Text());
  }
  return done;
}

// A container that starts again has the key that it had. Others of the same devices have another one: who had them
// before knows the old one.
Result<std::string> DeviceKeeper::KeyOf(const std::string& owner, const std::vector<ContainerVGpu>& vgpus) const {
  const auto before = made_.find(vgpus.front().name);
  const bool same = before != made_.end() && before->second.owner == owner;
  std::string key = same ? TextField(before->second.request, "key") : "";
  return key.empty() ? NewKey() : Result<std::string>(std::move(key));
}

// While the API server is away, a container that starts again has what it had.
Result<std::vector<Json>> DeviceKeeper::Requests(const PodContainer& owner, const std::vector<ContainerVGpu>& vgpus) {
  const auto pod =
      server_ ? server_->Get(fmt::format("/api/v1/namespaces/{}/pods/{}", owner.namespace_name, owner.pod)) : Json();
  std::vector<Json> requests;
  for (const ContainerVGpu& vgpu : vgpus) {
    if (!pod) {
      const MutexLock lock(mutex_);
      const auto before = made_.find(vgpu.name);
      if (before == made_.end() || before->second.owner != NameOf(owner)) return std::unexpected(pod.error());
      requests.push_back(before->second.request);
      continue;
    }
    auto terms = server_ ? TermsOf(*pod, owner.container, vgpu) : TermsOf(vgpu);
    if (!terms) return InPod(owner, terms.error());
    (*terms)["name"] = vgpu.name;
    (*terms)["gpu"] = vgpu.gpu_uuid;
    if (vgpus.size() > 1) (*terms)["gang"] = vgpus.front().name;
    requests.push_back(std::move(*terms));
  }
  return requests;
}

// Whether it was not there. One of another container, or of one that this object does not know, is made anew: of the
// container that has the devices now, nothing runs.
Result<bool> DeviceKeeper::Make(const std::string& owner, const Json& request) {
  const std::string name = TextField(request, "name");
  const auto there = daemon_.Get("/v1/vgpus/" + name);
  if (!there && there.error().code != ENOENT) return std::unexpected(there.error());
  const auto before = made_.find(name);
  const bool known = before != made_.end() && before->second.owner == owner && before->second.request == request;
  if (there && known) return false;
  if (there) {
    if (auto removed = Remove(name, true); !removed) return std::unexpected(removed.error());
  }
  made_.erase(name);  // what does not come about is not to be made again
  if (const auto made = daemon_.Post("/v1/vgpus", request); !made) return std::unexpected(made.error());
  made_[name] = {.owner = owner, .request = request};
  return true;
}

Result<void> DeviceKeeper::Remove(const std::string& vgpu, bool force) const {
  const auto removed = daemon_.Delete("/v1/vgpus/" + vgpu + (force ? "?force=1" : ""));
  if (!removed && removed.error().code != ENOENT) return std::unexpected(removed.error());
  return {};
}

// vGPUs that were made for some of these devices when others had them.
Result<void> DeviceKeeper::RemoveOthers(const std::set<std::string>& ids,
                                        const std::vector<ContainerVGpu>& vgpus) const {
  for (const std::string& id : ids) {
    const auto alone = VGpusFor({id});
    if (!alone) return std::unexpected(alone.error());
    if (std::ranges::find(vgpus, alone->front().name, &ContainerVGpu::name) != vgpus.end()) continue;
    if (auto removed = Remove(alone->front().name, true); !removed) return removed;
  }
  return {};
}

Result<void> DeviceKeeper::Write(const std::vector<ContainerVGpu>& vgpus, const std::string& key) const {
  const std::string device = CdiDeviceOf(vgpus);
  cdi::SpecFacts facts;
  facts.devices.push_back({.vgpu = Joined(vgpus, &ContainerVGpu::name),
                           .key = key,
                           .gpu_uuid = Joined(vgpus, &ContainerVGpu::gpu_uuid),
                           .name = device,
                           .nodes = {},
                           .variables = {}});
  return WriteCdiFile(CdiFile(device), std::move(facts), setup_.containers, daemon_);
}

std::vector<std::string> DeviceKeeper::Prefer(const std::vector<std::string>& available,
                                              const std::vector<std::string>& must_include, std::size_t size) const {
  PreferenceFacts facts{.each = setup_.each, .room = {}, .need = 0};
  const auto gpus = daemon_.Get("/v1/gpus");
  if (server_ && gpus && Field(*gpus, "gpus").size() > 1) {
    const auto vgpus = daemon_.Get("/v1/vgpus");
    const auto listed = list_();
    const auto pods = server_->Get(
        fmt::format("/api/v1/pods?fieldSelector=spec.nodeName%3D{}%2Cstatus.phase%3DPending", setup_.node));
    if (vgpus && listed && pods) {
      facts.room = RoomOf(*gpus, *vgpus, *pods, *listed);
      facts.need = NeedOf(*pods, *listed, size);
    }
  }
  return Preferred(available, must_include, size, facts);
}

// The lock is held from the kubelet's answer to the last removal: what is prepared meanwhile was listed before, or is
// made when this has ended.
Result<void> DeviceKeeper::Look() {
  const MutexLock lock(mutex_);
  const auto listed = list_();
  if (!listed) return std::unexpected(listed.error());
  const auto all = daemon_.Get("/v1/vgpus");
  if (!all) return std::unexpected(all.error());
  std::set<std::string> there = CdiFiles(), wanted;
  for (const Json& vgpu : Field(*all, "vgpus")) {
    if (IsOfDevicePlugin(TextField(vgpu, "name"))) there.insert(TextField(vgpu, "name"));
  }
  Result<void> first;
  const auto note = [&](const auto& done) {
    if (!done && first) first = std::unexpected(done.error());
  };
  for (const PodContainer& container : *listed) {
    const auto vgpus = VGpusFor(IdsOf(container));
    if (!vgpus) continue;
    wanted.insert(CdiFile(CdiDeviceOf(*vgpus)));
    for (const ContainerVGpu& vgpu : *vgpus) {
      wanted.insert(vgpu.name);
      const auto before = made_.find(vgpu.name);
      if (there.contains(vgpu.name) || before == made_.end() || before->second.owner != NameOf(container)) continue;
      const Json request = before->second.request;
      note(Make(NameOf(container), request));
    }
  }
  for (const std::string& stray : strays_.Look(there, wanted)) {
    if (IsOfDevicePlugin(stray)) {
      const auto removed = Remove(stray, false);
      if (!removed && removed.error().code != EBUSY) note(removed);
    } else if (unlink(stray.c_str()) != 0 && errno != ENOENT) {
      note(Result<void>(FailErrno("cannot remove " + stray)));
    }
  }
  return first;
}

std::string DeviceKeeper::CdiFile(const std::string& device) const {
  return fmt::format("{}/{}{}{}", setup_.cdi_dir, kFilePrefix, device, kFileSuffix);
}

std::set<std::string> DeviceKeeper::CdiFiles() const {
  std::set<std::string> files;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(setup_.cdi_dir, error)) {
    const std::string name = file.path().filename();
    if (name.starts_with(kFilePrefix) && name.ends_with(kFileSuffix) &&
        IsOfDevicePlugin(name.substr(kFilePrefix.size())))
      files.insert(file.path());
  }
  return files;
}

}  // namespace tessera::kubernetes
