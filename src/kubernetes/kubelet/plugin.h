#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kubernetes/claims/claim_preparer.h"
#include "kubernetes/claims/status_writer.h"
#include "kubernetes/slices/health_board.h"

namespace tessera::kubernetes {

// The two gRPC servers of a DRA plugin: one that the kubelet finds in its plugins_registry and asks who we are, and one
// at which it has claims prepared. They run until the object ends.
class Plugin {
 public:
  // `kubelet_dir`: its root directory, such as /var/lib/kubelet. `node` is also the name of its pool. The others
  // outlive the object. EADDRINUSE or another error of the sockets; ENAMETOOLONG: a socket's path has 107 bytes at
  // most.
  static Result<std::unique_ptr<Plugin>> Start(const std::string& kubelet_dir, const std::string& node,
                                               ClaimPreparer& preparer, StatusWriter& status, HealthBoard& health);
  virtual ~Plugin() = default;
};

}  // namespace tessera::kubernetes
