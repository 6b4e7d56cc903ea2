#pragma once

#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/result.h"
#include "client/api_client.h"
#include "kubernetes/api_server/api_server.h"
#include "kubernetes/slices/health_board.h"

namespace tessera::kubernetes {

// Keeps the node's ResourceSlice in the API server as the daemon's GPUs are, by a thread of its own: asks the daemon
// every few seconds, and the API server when something has changed there, or somebody changes or deletes the slice.
// (The kubelet deletes it when the driver was away for half a minute.) While tesserad does not answer, the slice stays
// as it is; what is wrong is logged when it changes.
class SlicePublisher {
 public:
  // `server` and `health`, which is told how the GPUs are, outlive the object.
  SlicePublisher(std::string node, const std::string& run_dir, ApiServer& server, HealthBoard& health);
  ~SlicePublisher();

 private:
  void Run();
  void Follow();
  Result<void> Publish(bool look);
  Result<void> Remember(const Json& devices, const Result<Json>& answer);
  Result<Json> Slices() const;
  void Kick();

  const std::string node_;
  ApiServer& server_;
  HealthBoard& health_;
  const client::ApiClient daemon_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false, kicked_ = false;
  // The devices that were published last, which the API server may write in another way, and its version of the slice.
  Json wanted_;
  std::string published_;
  std::thread publishes_, follows_;
};

}  // namespace tessera::kubernetes
