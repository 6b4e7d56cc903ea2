#pragma once

#include <atomic>
#include <set>

#include "kubernetes/device_plugin/device_keeper.h"
#include "kubernetes/device_plugin/device_list.h"
#include "kubernetes/proto/device_plugin.grpc.pb.h"

namespace tessera::kubernetes {

// What the kubelet asks the device plugin.
class PluginService final : public v1beta1::DevicePlugin::Service {
 public:
  // Both outlive the object.
  PluginService(const DeviceList& devices, DeviceKeeper& keeper) : devices_(devices), keeper_(keeper) {}

  static v1beta1::DevicePluginOptions Options();
  // How many kubelets are told of the devices now.
  int Listeners() const { return listeners_; }

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* options) override;
  // Tells all devices at once, and again at each change, until the kubelet goes or the server ends.
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override;
  grpc::Status GetPreferredAllocation(grpc::ServerContext*, const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* response) override;
  // Says which CDI device the container gets, and does nothing: the kubelet does not say whose it is.
  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override;
  // Makes the vGPU and the CDI device: now the kubelet lists whose the devices are, and it waits for the answer before
  // it has the container made.
  grpc::Status PreStartContainer(grpc::ServerContext*, const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse*) override;

 private:
  const DeviceList& devices_;
  DeviceKeeper& keeper_;
  std::atomic<int> listeners_ = 0;
};

}  // namespace tessera::kubernetes
