#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "client/api_client.h"
#include "kubernetes/claims/checkpoint.h"
#include "kubernetes/containers/cdi_file.h"

namespace tessera::kubernetes {

// The CDI specifications of claims: a file for each, in the folder that container runtimes read. Files are root's
// alone, because they have the keys of the vGPUs. Any thread; one call at a time for the same claim.
class ClaimCdi {
 public:
  struct Setup {
    std::string folder;  // such as /var/run/cdi
    ContainerSetup containers;
  };
  // `daemon` outlives the object.
  ClaimCdi(Setup setup, const client::ApiClient& daemon) : setup_(std::move(setup)), daemon_(daemon) {}

  // "tessera.dev/vgpu=NAME", as the kubelet passes it on. The vGPUs of a claim are one device, because each alone would
  // set the same variables.
  static std::string IdOf(const std::string& uid, const PreparedClaim& claim);

  bool Exists(const std::string& uid) const;
  // Its vGPUs are there. The name of the file has the UID, so that no runtime finds an older one in its cache. Errors
  // of the daemon and of the file.
  Result<void> Write(const std::string& uid, const PreparedClaim& claim) const;
  // Also one that is not there.
  Result<void> Remove(const std::string& uid) const;
  // Removes the files of all claims but those that are to be kept.
  void RemoveOthers(const std::function<bool(const std::string& uid)>& keep) const;
  std::string File(const std::string& uid) const;

 private:
  const Setup setup_;
  const client::ApiClient& daemon_;
};

}  // namespace tessera::kubernetes
