#include "kubernetes/dra_driver.h"

#include <cstdio>
#include <filesystem>

#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {

Result<std::unique_ptr<DraDriver>> DraDriver::Start(const Setup& setup, const ApiServerAccess& access) {
  const std::string folder = setup.kubelet_dir + "/plugins/" + kDriver;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::unique_ptr<DraDriver> driver(new DraDriver(access));
  auto preparer = ClaimPreparer::Start({.node = setup.node,
                                        .cdi_dir = setup.cdi_dir,
                                        .checkpoint = folder + "/checkpoint.json",
                                        .containers = setup.containers},
                                       driver->server_);
  if (!preparer) return std::unexpected(preparer.error());
  driver->preparer_ = std::move(*preparer);
  ClaimPreparer& claims = *driver->preparer_;
  // If tesserad does not answer, the kubelet can wait for it.
  if (auto removed = claims.RemoveStray(); !removed)
    std::fprintf(stderr, "tessera-kubelet: %s\n", removed.error().Text().c_str());
  driver->status_ = std::make_unique<StatusWriter>(setup.node, driver->server_,
                                                   [&claims](const std::string& uid) { return claims.Find(uid); });
  auto plugin = Plugin::Start(setup.kubelet_dir, setup.node, claims, *driver->status_, driver->health_);
  if (!plugin) return std::unexpected(plugin.error());
  driver->plugin_ = std::move(*plugin);
  driver->publisher_ =
      std::make_unique<SlicePublisher>(setup.node, setup.containers.run_dir, driver->server_, driver->health_);
  driver->pods_ = std::make_unique<PodWatch>(setup.node, access, claims, *driver->status_);
  return driver;
}

}  // namespace tessera::kubernetes
