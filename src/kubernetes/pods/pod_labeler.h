#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "client/api_client.h"
#include "kubernetes/pods/pod_labels.h"

namespace tessera::kubernetes {

// Keeps the labels of our vGPUs as the kubelet lists their pods, by a thread of its own: it asks the kubelet every few
// seconds (`look`), and each second at least while a claim has no container yet; never while there are no vGPUs of
// ours. What is wrong is logged when it changes: where the kubelet does not tell, vGPUs of claims have their
// `namespace` only.
class PodLabeler {
 public:
  using Lister = std::function<Result<std::vector<PodContainer>>()>;

  // `list` asks the kubelet, `claims` gives those that are prepared; `devices` may be empty. The thread calls them
  // until the object ends, which may take as long as a call. `run_dir` is tesserad's.
  PodLabeler(const std::string& run_dir, Lister list, std::function<Checkpoint::Claims()> claims, DeviceVGpus devices,
             std::chrono::milliseconds look);
  ~PodLabeler();

 private:
  void Run() TESSERA_EXCLUDES(mutex_);
  Result<bool> Look(const Checkpoint::Claims& claims) const;

  const client::ApiClient daemon_;
  const Lister list_;
  const std::function<Checkpoint::Claims()> claims_;
  const DeviceVGpus devices_;
  const std::chrono::milliseconds look_;
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ TESSERA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera::kubernetes
