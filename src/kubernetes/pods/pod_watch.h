#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kubernetes/api_server/api_server.h"
#include "kubernetes/claims/claim_preparer.h"
#include "kubernetes/claims/status_writer.h"
#include "kubernetes/pods/asked_change.h"

namespace tessera::kubernetes {

// Follows the pods of this node, and changes the vGPUs of those that ask for it by kConfigAnnotation, while they run.
// Takes the change back when the annotation goes. What became of it stands in the claims' status. Of several pods with
// the same claim, the first by name decides. Two threads of its own.
class PodWatch {
 public:
  // `access` is for a connection of its own. `preparer` and `status` outlive the object.
  PodWatch(const std::string& node, const ApiServerAccess& access, ClaimPreparer& preparer, StatusWriter& status);
  ~PodWatch();

 private:
  using Claim = std::pair<std::string, std::string>;  // namespace and name
  enum class Outcome { kDone, kRefused, kLater };

  void Follow();
  void Change();
  void TakeAll(const Json& pods);
  void Take(const std::string& type, const Json& pod);
  std::map<Claim, AskedChange> Wanted() const;
  bool ChangeAll(const std::map<Claim, AskedChange>& wanted);
  Outcome ChangeOne(const std::string& uid, const Claim& claim, const std::string& config, const std::string& by);

  const std::string path_;
  ApiServer server_;
  ClaimPreparer& preparer_;
  StatusWriter& status_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false, kicked_ = false;
  std::map<std::string, std::vector<AskedChange>> asked_;  // by the pod's namespace and name
  std::map<std::string, std::string> refused_;             // annotations by the claim's UID; on the second thread
  std::thread follows_, changes_;
};

}  // namespace tessera::kubernetes
