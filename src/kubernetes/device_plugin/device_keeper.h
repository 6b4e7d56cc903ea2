#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "client/api_client.h"
#include "kubernetes/api_server/api_server.h"
#include "kubernetes/containers/cdi_file.h"
#include "kubernetes/device_plugin/strays.h"
#include "kubernetes/device_plugin/virtual_device.h"
#include "kubernetes/kubelet/pod_resources.h"

namespace tessera::kubernetes {

struct KeeperSetup {
  std::string node;         // its name
  std::string cdi_dir;      // of CDI specifications, such as /var/run/cdi
  std::uint32_t each = 10;  // virtual devices of a GPU
  ContainerSetup containers;
};

// Keeps a vGPU, and a CDI specification, for the virtual devices of each container: makes both before the container
// starts, and removes them when the kubelet lists its devices no more. (It never says when a container ends.) Nothing
// is kept on disk beside that: names of vGPUs and files say which devices they are for.
//
// Any thread. One container at a time is worked on, but for what the kubelet and the API server are asked.
class DeviceKeeper {
 public:
  using Lister = std::function<Result<std::vector<PodContainer>>()>;

  // `list` asks the kubelet. `server` outlives the object; null: there is none, and pods cannot say anything.
  DeviceKeeper(KeeperSetup setup, Lister list, const ApiServer* server);

  // A container with these devices is about to start, perhaps again. ENOENT: the kubelet lists no container that has
  // them; EINVAL: a word of its pod is wrong; ECONNREFUSED: tesserad, the kubelet or the API server does not answer;
  // what tesserad itself refuses, because a value is wrong or its GPU has no room, is told in its words. Then nothing
  // is left that was not there before. Blocks as long as they need.
  Result<void> Prepare(const std::set<std::string>& ids);

  // As Preferred (preference.h). Who does not answer is done without.
  std::vector<std::string> Prefer(const std::vector<std::string>& available,
                                  const std::vector<std::string>& must_include, std::size_t size) const;

  // To be called every few seconds. Removes what belongs to no container, but for vGPUs in which programs run, and
  // makes again what a container has lost. The first error; the rest is done all the same.
  Result<void> Look();

 private:
  // A vGPU that this object has made.
  struct Made {
    std::string owner;  // "NAMESPACE/POD/CONTAINER"
    Json request;       // of POST /v1/vgpus
  };
  Result<std::vector<Json>> Requests(const PodContainer& owner, const std::vector<ContainerVGpu>& vgpus)
      TESSERA_EXCLUDES(mutex_);
  Result<std::string> KeyOf(const std::string& owner, const std::vector<ContainerVGpu>& vgpus) const
      TESSERA_REQUIRES(mutex_);
  Result<bool> Make(const std::string& owner, const Json& request) TESSERA_REQUIRES(mutex_);
  Result<void> Remove(const std::string& vgpu, bool force) const;
  Result<void> RemoveOthers(const std::set<std::string>& ids, const std::vector<ContainerVGpu>& vgpus) const;
  Result<void> Write(const std::vector<ContainerVGpu>& vgpus, const std::string& key) const;
  std::string CdiFile(const std::string& device) const;
  std::set<std::string> CdiFiles() const;

  const KeeperSetup setup_;
  const Lister list_;
  const ApiServer* const server_;
  const client::ApiClient daemon_;
  Mutex mutex_;
  std::map<std::string, Made> made_ TESSERA_GUARDED_BY(mutex_);  // by name, also those that were removed as strays
  Strays strays_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::kubernetes
