#include "kubernetes/kubelet/plugin.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "kubernetes/kubelet/health_service.h"
#include "kubernetes/kubelet/unix_server.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/proto/dra.grpc.pb.h"
#include "kubernetes/proto/plugin_registration.grpc.pb.h"

namespace tessera::kubernetes {
namespace {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;
using grpc::ServerContext;
using grpc::Status;

void Log(const char* what, const dra::Claim& claim, const std::string& text) {
  std::fprintf(stderr, "tessera-kubelet: claim %s/%s (%s): %s%s\n", claim.namespace_().c_str(), claim.name().c_str(),
               claim.uid().c_str(), what, text.c_str());
}

// The kubelet looks for sockets in plugins_registry, and asks each.
class Registration final : public pluginregistration::Registration::Service {
 public:
  explicit Registration(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  Status GetInfo(ServerContext*, const pluginregistration::InfoRequest*,
                 pluginregistration::PluginInfo* info) override {
    info->set_type("DRAPlugin");
    info->set_name(kDriver);
    info->set_endpoint(endpoint_);
    info->add_supported_versions("v1.DRAPlugin");
    info->add_supported_versions("v1alpha1.DRAResourceHealth");
    return Status::OK;
  }

  Status NotifyRegistrationStatus(ServerContext*, const pluginregistration::RegistrationStatus* status,
                                  pluginregistration::RegistrationStatusResponse*) override {
    std::fprintf(stderr, "tessera-kubelet: %s\n",
                 status->plugin_registered() ? "registered with the kubelet"
                                             : ("the kubelet refuses: " + status->error()).c_str());
    return Status::OK;
  }

 private:
  const std::string endpoint_;
};

class DraService final : public dra::DRAPlugin::Service {
 public:
  DraService(ClaimPreparer& preparer, StatusWriter& status) : preparer_(preparer), status_(status) {}

  Status NodePrepareResources(ServerContext* context, const dra::NodePrepareResourcesRequest* request,
                              dra::NodePrepareResourcesResponse* response) override {
    for (const dra::Claim& claim : request->claims()) {
      if (context->IsCancelled()) return Status::CANCELLED;  // the kubelet asks again
      dra::NodePrepareResourceResponse& answer = (*response->mutable_claims())[claim.uid()];
      const auto ready = preparer_.Prepare(claim.namespace_(), claim.name(), claim.uid());
      if (!ready) {
        Log("not prepared: ", claim, ready.error().Text());
        Tell(claim, {kReady, false, "NotPrepared", ready.error().Text()});
        answer.set_error(ready.error().Text());
        continue;
      }
      for (const ReadyDevice& each : *ready) {
        dra::Device& device = *answer.add_devices();
        device.add_request_names(each.device.request);
        device.set_pool_name(each.device.pool);
        device.set_device_name(each.device.device);
        device.add_cdi_device_ids(each.cdi_id);
        if (!each.device.share_id.empty()) device.set_share_id(each.device.share_id);
      }
      Log("prepared: ", claim, ready->front().cdi_id);
      Tell(claim, {kReady, true, "Prepared", "its vGPU is ready"});
    }
    return Status::OK;
  }

  Status NodeUnprepareResources(ServerContext*, const dra::NodeUnprepareResourcesRequest* request,
                                dra::NodeUnprepareResourcesResponse* response) override {
    for (const dra::Claim& claim : request->claims()) {
      dra::NodeUnprepareResourceResponse& answer = (*response->mutable_claims())[claim.uid()];
      const auto done = preparer_.Unprepare(claim.uid());
      if (!done) answer.set_error(done.error().Text());
      Log(done ? "unprepared" : "not unprepared: ", claim, done ? "" : done.error().Text());
    }
    return Status::OK;
  }

 private:
  void Tell(const dra::Claim& claim, Condition condition) {
    status_.Tell(claim.namespace_(), claim.name(), claim.uid(), std::move(condition));
  }

  ClaimPreparer& preparer_;
  StatusWriter& status_;
};

class Servers final : public Plugin {
 public:
  Servers(const std::string& dra_path, const std::string& node, ClaimPreparer& preparer, StatusWriter& status,
          HealthBoard& health)
      : registration_(dra_path), dra_(preparer, status), health_(node, health) {}
  ~Servers() override {
    constexpr std::chrono::seconds kPatience{5};
    for (auto* server : {&registry_server_, &dra_server_}) {
      if (*server) (*server)->Shutdown(std::chrono::system_clock::now() + kPatience);
    }
  }

  Result<void> Start(const std::string& dra_path, const std::string& registry_path) {
    auto server = ServeAt(dra_path, {&dra_, &health_});
    if (!server) return std::unexpected(server.error());
    dra_server_ = std::move(*server);
    server = ServeAt(registry_path, {&registration_});
    if (!server) return std::unexpected(server.error());
    registry_server_ = std::move(*server);
    return {};
  }

 private:
  Registration registration_;
  DraService dra_;
  HealthService health_;
  std::unique_ptr<grpc::Server> dra_server_, registry_server_;
};

}  // namespace

Result<std::unique_ptr<Plugin>> Plugin::Start(const std::string& kubelet_dir, const std::string& node,
                                              ClaimPreparer& preparer, StatusWriter& status, HealthBoard& health) {
  const std::string dra_path = fmt::format("{}/plugins/{}/dra.sock", kubelet_dir, kDriver);
  auto servers = std::make_unique<Servers>(dra_path, node, preparer, status, health);
  if (auto started = servers->Start(dra_path, fmt::format("{}/plugins_registry/{}-reg.sock", kubelet_dir, kDriver));
      !started)
    return std::unexpected(started.error());
  return servers;
}

}  // namespace tessera::kubernetes
