#include "kubernetes/pods/pod_labeler.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/json_fields.h"

namespace tessera::kubernetes {

using client::Field;
using client::Json;
using client::TextField;

namespace {

constexpr std::chrono::milliseconds kMostStep{1000};

Labels LabelsIn(const Json& vgpu) {
  Labels labels;
  const Json& told = Field(vgpu, "labels");
  if (!told.is_object()) return labels;
  for (const auto& [key, value] : told.items()) {
    if (value.is_string()) labels[key] = value.get<std::string>();
  }
  return labels;
}

}  // namespace

PodLabeler::PodLabeler(const std::string& run_dir, Lister list, std::function<Checkpoint::Claims()> claims,
                       DeviceVGpus devices, std::chrono::milliseconds look)
    : daemon_(run_dir), list_(std::move(list)), claims_(std::move(claims)), devices_(std::move(devices)), look_(look) {
  thread_ = std::thread([this] { Run(); });
}

PodLabeler::~PodLabeler() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void PodLabeler::Run() {
  using std::chrono::steady_clock;
  std::string told;  // the last complaint
  Checkpoint::Claims before;
  bool complete = true;
  for (auto next = steady_clock::now();;) {
    Checkpoint::Claims claims = claims_();
    const bool any = !claims.empty() || devices_;
    if (any && (!complete || claims != before || steady_clock::now() >= next)) {
      next = steady_clock::now() + look_;
      const auto looked = Look(claims);
      complete = looked.value_or(true);  // who does not answer is asked again later
      if (const std::string complaint = looked ? "" : looked.error().Text(); complaint != told) {
        std::fprintf(stderr, "tessera-kubelet: metrics: %s\n",
                     complaint.empty() ? "they name pods" : ("they do not name pods: " + complaint).c_str());
        told = complaint;
      }
    }
    before = std::move(claims);
    const MutexLock lock(mutex_);
    const auto end = steady_clock::now() + std::min(look_, kMostStep);
    while (!stopped_ && changed_.WaitUntil(mutex_, end)) {
    }
    if (stopped_) return;
  }
}

// Whether every claim has a container.
Result<bool> PodLabeler::Look(const Checkpoint::Claims& claims) const {
  const auto listed = list_();
  if (!listed) return std::unexpected(listed.error());
  const auto vgpus = daemon_.Get("/v1/vgpus");
  if (!vgpus) return std::unexpected(vgpus.error());
  const PodsOfVGpus pods = PodsOf(*listed, claims, devices_);
  Result<bool> first = pods.complete;
  for (const Json& vgpu : Field(*vgpus, "vgpus")) {
    const std::string name = TextField(vgpu, "name");
    const auto wanted = pods.labels.find(name);
    if (wanted == pods.labels.end()) continue;
    const Labels now = LabelsIn(vgpu), labels = WithPod(now, wanted->second);
    if (labels == now) continue;
    const auto set = daemon_.Patch("/v1/vgpus/" + name + "?wait=false", {{"labels", labels}});
    if (!set && set.error().code != ENOENT && first) first = std::unexpected(set.error());
  }
  return first;
}

}  // namespace tessera::kubernetes
