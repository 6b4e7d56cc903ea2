#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kubernetes/api_server/api_server.h"
#include "kubernetes/claims/claim_preparer.h"
#include "kubernetes/claims/status_writer.h"
#include "kubernetes/kubelet/plugin.h"
#include "kubernetes/pods/pod_watch.h"
#include "kubernetes/slices/health_board.h"
#include "kubernetes/slices/slice_publisher.h"

namespace tessera::kubernetes {

// The DRA driver of a node: what it offers to the scheduler, prepares for the kubelet, and changes for running pods.
class DraDriver {
 public:
  struct Setup {
    std::string node;         // its name
    std::string kubelet_dir;  // the kubelet's root directory
    std::string cdi_dir;      // of CDI specifications
    ContainerSetup containers;
  };

  // Serves until the object ends. EBADMSG: the checkpoint cannot be read; errors of the sockets.
  static Result<std::unique_ptr<DraDriver>> Start(const Setup& setup, const ApiServerAccess& access);

  // Of its claims, those that are prepared, or that it has begun with. Any thread.
  Checkpoint::Claims Claims() { return preparer_->Claims(); }

 private:
  explicit DraDriver(const ApiServerAccess& access) : server_(access) {}

  ApiServer server_;
  HealthBoard health_;
  std::unique_ptr<ClaimPreparer> preparer_;
  std::unique_ptr<StatusWriter> status_;
  std::unique_ptr<Plugin> plugin_;
  std::unique_ptr<SlicePublisher> publisher_;
  std::unique_ptr<PodWatch> pods_;
};

}  // namespace tessera::kubernetes
