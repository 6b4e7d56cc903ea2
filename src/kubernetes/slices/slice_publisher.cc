#include "kubernetes/slices/slice_publisher.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/api_server/backoff.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/slices/slice.h"

namespace tessera::kubernetes {

using client::Field;
using client::IntegerField;
using client::TextField;
using std::chrono::seconds;

namespace {

constexpr seconds kLook{5}, kAgain{1};
constexpr const char* kSlices = "/apis/resource.k8s.io/v1/resourceslices";

std::string Selector(const std::string& node) {
  return fmt::format("{}?fieldSelector=spec.nodeName%3D{}%2Cspec.driver%3D{}", kSlices, node, kDriver);
}

}  // namespace

SlicePublisher::SlicePublisher(std::string node, const std::string& run_dir, ApiServer& server, HealthBoard& health)
    : node_(std::move(node)), server_(server), health_(health), daemon_(run_dir) {
  publishes_ = std::thread([this] { Run(); });
  follows_ = std::thread([this] { Follow(); });
}

SlicePublisher::~SlicePublisher() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  server_.Stop();
  publishes_.join();
  follows_.join();
}

void SlicePublisher::Run() {
  std::string told;  // the last complaint
  for (bool look = true;;) {
    const auto published = Publish(look);
    if (const std::string complaint = published ? "" : published.error().Text(); complaint != told) {
      std::fprintf(stderr, "tessera-kubelet: slices: %s\n", complaint.empty() ? "published" : complaint.c_str());
      told = complaint;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, published ? kLook : kAgain, [&] { return stopped_ || (kicked_ && published.has_value()); });
    if (stopped_) return;
    look = std::exchange(kicked_, false) || !published;
  }
}

void SlicePublisher::Kick() {
  {
    const std::lock_guard lock(mutex_);
    kicked_ = true;
  }
  changed_.notify_all();
}

Result<Json> SlicePublisher::Slices() const { return server_.Get(Selector(node_)); }

// One slice is right, all others go. The API server is asked only where something may have changed: there are many
// nodes.
Result<void> SlicePublisher::Publish(bool look) {
  const auto gpus = daemon_.Get("/v1/gpus"), vgpus = daemon_.Get("/v1/vgpus");
  if (!gpus || !vgpus) {
    const Error& error = gpus ? vgpus.error() : gpus.error();
    health_.SetUnknown(error.Text());
    return std::unexpected(error);
  }
  const auto offered = OfferedGpus(*gpus, *vgpus);
  health_.Set(HealthOf(offered));
  const Json devices = DevicesOf(offered);
  if (!look && devices == wanted_) return {};
  const auto slices = Slices();
  if (!slices) return std::unexpected(slices.error());
  bool there = false;
  std::uint64_t generation = 0;
  for (const Json& slice : Field(*slices, "items"))
    generation = std::max(generation, IntegerField(Field(Field(slice, "spec"), "pool"), "generation"));
  for (const Json& slice : Field(*slices, "items")) {
    const Json& metadata = Field(slice, "metadata");
    const std::string path = fmt::format("{}/{}", kSlices, TextField(metadata, "name"));
    if (there) {
      if (auto removed = server_.Delete(path); !removed && removed.error().code != ENOENT) return removed;
      continue;
    }
    there = true;
    if (devices == wanted_ && TextField(metadata, "resourceVersion") == published_) continue;
    Json changed = slice;
    changed["apiVersion"] = "resource.k8s.io/v1";
    changed["kind"] = "ResourceSlice";
    changed["spec"]["devices"] = devices;
    changed["spec"]["pool"] = {{"name", node_}, {"generation", generation + 1}, {"resourceSliceCount", 1}};
    if (auto put = Remember(devices, server_.Put(path, changed)); !put) return put;
  }
  if (there) return {};
  const auto node = server_.Get("/api/v1/nodes/" + node_);
  if (!node) return std::unexpected(node.error());
  const std::string uid = TextField(Field(*node, "metadata"), "uid");
  return Remember(devices, server_.Post(kSlices, SliceOf(node_, uid, devices, generation + 1)));
}

Result<void> SlicePublisher::Remember(const Json& devices, const Result<Json>& answer) {
  if (!answer) return std::unexpected(answer.error());
  wanted_ = devices;
  published_ = TextField(Field(*answer, "metadata"), "resourceVersion");
  return {};
}

// Its own errors are those of Run, which complains.
void SlicePublisher::Follow() {
  Backoff backoff;
  for (;;) {
    const auto begin = std::chrono::steady_clock::now();
    if (const auto slices = Slices(); slices) {
      Kick();  // it may have changed before the watch began
      (void)server_.Watch(Selector(node_), TextField(Field(*slices, "metadata"), "resourceVersion"),
                          [this](const std::string&, const Json&) { Kick(); });
    }
    const auto wait = backoff.After(std::chrono::steady_clock::now() - begin);
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, wait, [this] { return stopped_; })) return;
  }
}

}  // namespace tessera::kubernetes
