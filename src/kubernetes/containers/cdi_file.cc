#include "kubernetes/containers/cdi_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/whole_file.h"
#include "cdi/driver_files.h"
#include "cdi/soft_gpus.h"
#include "client/json_fields.h"

namespace tessera::kubernetes {

Result<void> WriteCdiFile(const std::string& path, cdi::SpecFacts facts, const ContainerSetup& setup,
                          const client::ApiClient& daemon) {
  const auto health = daemon.Get("/healthz");
  if (!health) return std::unexpected(health.error());
  facts.installation = setup.installation;
  facts.run_dir = setup.run_dir;
  Result<void> added;
  if (client::BoolField(*health, "soft")) {
    struct stat socket{};
    if (stat((setup.run_dir + "/programs/client.sock").c_str(), &socket) != 0)
      return FailErrno("tesserad has no socket for containers in " + setup.run_dir);
    const char* const soft_name = std::getenv("TESSERA_SOFT_NAME");
    added = cdi::AddSoftGpus(socket.st_uid, soft_name ? soft_name : "", facts);
  } else if (setup.driver) {
    added = cdi::AddDriver(facts, setup.host_root);
  }
  if (!added) return added;
  return ReplaceFile(path, cdi::Spec(facts).dump(2) + "\n", 0600, "make room there; the kubelet asks again");
}

}  // namespace tessera::kubernetes
