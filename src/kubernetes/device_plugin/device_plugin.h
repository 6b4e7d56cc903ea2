#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "kubernetes/api_server/api_server.h"
#include "kubernetes/device_plugin/device_keeper.h"

namespace tessera::kubernetes {

struct DevicePluginSetup {
  KeeperSetup keeper;
  std::string folder;                    // the kubelet's for device plugins
  std::string pod_resources;             // path of the kubelet's socket for that
  std::chrono::milliseconds look{5000};  // how often tesserad and the kubelet are asked
};

// The device plugin of Kubernetes: offers the GPUs of tesserad as tessera.dev/vgpu, several times each, and makes vGPUs
// of those that containers get. It runs by threads of its own until the object ends. While tesserad does not answer,
// the devices stay as they were; what is wrong is logged when it changes.
class DevicePlugin {
 public:
  // `server` outlives the object; null: pods cannot say how much they need, and nothing is counted.
  static std::unique_ptr<DevicePlugin> Start(DevicePluginSetup setup, const ApiServer* server);
  virtual ~DevicePlugin() = default;
};

}  // namespace tessera::kubernetes
