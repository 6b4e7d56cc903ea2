#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/api_client.h"
#include "kubernetes/api_server/api_server.h"
#include "kubernetes/claims/checkpoint.h"
#include "kubernetes/claims/claim.h"
#include "kubernetes/claims/claim_cdi.h"

namespace tessera::kubernetes {

// Where the files of claims lie, and what containers get.
struct PreparerSetup {
  std::string node;        // its name, which is also the pool's
  std::string cdi_dir;     // of CDI specifications, such as /var/run/cdi
  std::string checkpoint;  // path of the file
  ContainerSetup containers;
};

// A device of a claim that is ready for containers.
struct ReadyDevice {
  PreparedDevice device;
  std::string cdi_id;
};

// Makes claims ready for containers: a vGPU for each of their devices, and a CDI specification for the claim; and takes
// both away again. All calls are idempotent, and a driver that was killed in one goes on where it was when the kubelet
// asks again. Any thread; one claim at a time is worked on, but for what the API server is asked.
class ClaimPreparer {
 public:
  // Reads the checkpoint. `server` outlives the object.
  static Result<std::unique_ptr<ClaimPreparer>> Start(PreparerSetup setup, ApiServer& server);

  // ENOENT: the claim is gone, or another one has its name; EINVAL: its parameters are wrong; ENOSPC: the GPU has no
  // room for it, whatever the scheduler believes; ECONNREFUSED: tesserad or the API server does not answer.
  Result<std::vector<ReadyDevice>> Prepare(const std::string& namespace_name, const std::string& name,
                                           const std::string& uid);
  // Also of a claim that was never prepared. Programs that are left in its vGPUs lose their GPU.
  Result<void> Unprepare(const std::string& uid);

  // Changes the vGPUs of a prepared claim, whose programs go on: to its own terms with the parameters in `config` (a
  // VGpuConfig as JSON, without apiVersion and kind if one likes) over all others; empty: to its own terms. ENOENT: it
  // is not prepared; EINVAL: the parameters are wrong, and nothing was changed; other errors as for Prepare.
  Result<void> Change(const std::string& uid, const std::string& config);

  // What is known of a claim that is prepared; nothing of others.
  std::optional<PreparedClaim> Find(const std::string& uid);
  // The UID of the prepared claim of this name; empty: there is none.
  std::string UidOf(const std::string& namespace_name, const std::string& name);
  // Prepared claims that were changed, by their UIDs.
  Checkpoint::Claims ChangedClaims();

  // Those that are prepared, or that this has begun with.
  Checkpoint::Claims Claims();

  // Removes vGPUs and CDI files of claims that are not in the checkpoint, because that was lost, but for those whose
  // programs run. Once: if tesserad does not answer, the next Prepare does it.
  Result<void> RemoveStray();

 private:
  ClaimPreparer(PreparerSetup setup, ApiServer& server, Checkpoint checkpoint);
  Result<Claim> Read(const std::string& namespace_name, const std::string& name, const std::string& uid) const;
  Result<std::vector<ReadyDevice>> Make(const Claim& claim);
  Result<void> MakeVGpu(const std::string& namespace_name, const AllocatedDevice& device, const std::string& vgpu,
                        bool known, Json fields);
  Result<void> PatchAll(const PreparedClaim& claim, const std::vector<Json>& terms) const;
  Result<std::vector<std::string>> VGpusOf(const std::string& uid) const;
  Result<void> SweepOnce();
  Result<std::string> KeyOf(const std::string& uid) const;
  Result<void> Undo(const std::string& uid);

  const PreparerSetup setup_;
  ApiServer& server_;
  const client::ApiClient daemon_;
  const ClaimCdi cdi_;
  std::mutex mutex_;
  Checkpoint checkpoint_;
  bool swept_ = false;
};

// "NAMESPACE.CLAIM.UID", shortened in front to fit, and "-N" for all but the first device. Public for tests.
std::string VGpuNameFor(const Claim& claim, std::size_t device);

}  // namespace tessera::kubernetes
