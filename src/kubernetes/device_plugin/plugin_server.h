#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "kubernetes/device_plugin/plugin_service.h"

namespace tessera::kubernetes {

// The device plugin's socket in the kubelet's folder, and its registration there. A kubelet that starts removes all
// sockets and has forgotten all plugins; one whose connection is lost does not come back by itself. So both are looked
// at again and again. One thread.
class PluginServer {
 public:
  // `folder`: the kubelet's, /var/lib/kubelet/device-plugins. `devices` and `keeper` outlive the object.
  PluginServer(std::string folder, const DeviceList& devices, DeviceKeeper& keeper)
      : folder_(std::move(folder)), devices_(devices), service_(devices, keeper) {}
  ~PluginServer() { Close(); }

  // To be called about twice a second: listens where it does not, and registers where the kubelet does not know us,
  // once there are devices to tell of. What failed is tried again later, by and by less often. Blocks for five seconds
  // at most.
  Result<void> Step();

 private:
  using Clock = std::chrono::steady_clock;
  // Tells one socket of the kubelet from the next.
  struct Socket {
    dev_t device = 0;
    ino_t inode = 0;
    timespec made = {};
    bool operator==(const Socket& other) const {
      return device == other.device && inode == other.inode && made.tv_sec == other.made.tv_sec &&
             made.tv_nsec == other.made.tv_nsec;
    }
  };
  static std::optional<Socket> SocketAt(const std::string& path);
  Result<void> Register();
  void Close();

  const std::string folder_;
  const DeviceList& devices_;
  PluginService service_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<Socket> own_;         // that server_ has made
  std::optional<Socket> registered_;  // the kubelet's, at which we are registered
  std::optional<Socket> tried_;       // at which the last attempt was made
  Result<void> last_;                 // what came of that
  Clock::time_point heard_;           // when it last listened to us, or we registered
  Clock::time_point next_;            // attempt
  std::chrono::milliseconds delay_{0};
};

}  // namespace tessera::kubernetes
