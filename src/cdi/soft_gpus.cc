#include "cdi/soft_gpus.h"

#include <filesystem>

namespace tessera::cdi {

Result<void> AddSoftGpus(uid_t user, const std::string& name, SpecFacts& facts) {
  facts.soft = true;
  facts.soft_name = name;
  const auto path_for = [&](uid_t uid) {
    const std::string path = "/dev/shm/tessera-soft-" + std::to_string(uid);
    return name.empty() ? path : path + "-" + name;
  };
  const std::string host = path_for(user);
  if (!std::filesystem::exists(host))
    return Fail(ENOENT, "the soft GPU's file " + host + " does not exist",
                "set TESSERA_SOFT_NAME to the daemon's value");
  facts.mounts.push_back({host, host, true});
  // In a user namespace, as rootless engines make them, that user is root.
  if (user != 0) facts.mounts.push_back({host, path_for(0), true});
  return {};
}

}  // namespace tessera::cdi
