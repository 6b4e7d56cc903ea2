#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/result.h"
#include "kubernetes/api_server/api_server.h"
#include "kubernetes/claims/checkpoint.h"
#include "kubernetes/claims/claim_status.h"

namespace tessera::kubernetes {

// Writes conditions into the status of claims, by a thread of its own, so that no pod waits for it. What could not be
// written is tried again, a few times. Any thread.
class StatusWriter {
 public:
  // `prepared` tells what is known of a claim, by its UID; both outlive the object.
  StatusWriter(std::string pool, ApiServer& server,
               std::function<std::optional<PreparedClaim>(const std::string& uid)> prepared);
  ~StatusWriter();

  // The condition of all devices of the claim. A later one of the same type takes the place of one that waits.
  void Tell(const std::string& namespace_name, const std::string& name, const std::string& uid, Condition condition);

 private:
  struct Told {
    std::string namespace_name, name;
    Condition condition;
    int tries = 0;
  };
  using Key = std::pair<std::string, std::string>;  // UID, and type of the condition

  void Run();
  Result<void> Write(const std::string& uid, const Told& told) const;

  const std::string pool_;
  ApiServer& server_;
  const std::function<std::optional<PreparedClaim>(const std::string& uid)> prepared_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::map<Key, Told> waiting_;
  std::thread thread_;
};

}  // namespace tessera::kubernetes
