#include "kubernetes/device_plugin/device_plugin.h"

#include <cstdio>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "kubernetes/device_plugin/capacity_publisher.h"
#include "kubernetes/device_plugin/plugin_server.h"

namespace tessera::kubernetes {
namespace {

constexpr std::chrono::milliseconds kStep{500};

class Threads final : public DevicePlugin {
 public:
  Threads(DevicePluginSetup setup, const ApiServer* server)
      : each_(setup.keeper.each),
        daemon_(setup.keeper.containers.run_dir),
        keeper_(
            setup.keeper, [socket = setup.pod_resources] { return ListPodResources(socket); }, server),
        socket_(setup.folder, devices_, keeper_) {
    if (server) capacity_.emplace(setup.keeper.node, *server);
    registers_ = std::thread([this] { Repeat("registration", kStep, [this] { return socket_.Step(); }); });
    looks_ = std::thread([this, look = setup.look] { Look(look); });
  }
  ~Threads() override {
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
    }
    changed_.NotifyAll();
    registers_.join();
    looks_.join();
  }

 private:
  void Look(std::chrono::milliseconds look) {
    Repeat("devices", look, [this]() -> Result<void> {
      const auto gpus = daemon_.Get("/v1/gpus");
      if (!gpus) return std::unexpected(gpus.error());
      devices_.Set(OfferedDevices(*gpus, each_));
      const auto looked = keeper_.Look();
      if (!capacity_) return looked;
      const auto vgpus = daemon_.Get("/v1/vgpus");
      if (!vgpus) return std::unexpected(vgpus.error());
      const auto published = capacity_->Publish(*gpus, *vgpus);
      return looked ? published : looked;
    });
  }

  // Until the object ends.
  void Repeat(const char* what, std::chrono::milliseconds pause, const std::function<Result<void>()>& act) {
    std::string told;  // the last complaint
    for (;;) {
      const auto done = act();
      if (const std::string complaint = done ? "" : done.error().Text(); complaint != told) {
        std::fprintf(stderr, "tessera-kubelet: %s: %s\n", what, complaint.empty() ? "all is well" : complaint.c_str());
        told = complaint;
      }
      const auto end = std::chrono::steady_clock::now() + pause;
      const MutexLock lock(mutex_);
      while (!stopped_ && changed_.WaitUntil(mutex_, end)) {
      }
      if (stopped_) return;
    }
  }

  const std::uint32_t each_;
  const client::ApiClient daemon_;
  DeviceList devices_;
  DeviceKeeper keeper_;
  PluginServer socket_;
  std::optional<CapacityPublisher> capacity_;

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread registers_, looks_;
};

}  // namespace

std::unique_ptr<DevicePlugin> DevicePlugin::Start(DevicePluginSetup setup, const ApiServer* server) {
  return std::make_unique<Threads>(std::move(setup), server);
}

}  // namespace tessera::kubernetes
