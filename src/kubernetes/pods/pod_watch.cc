#include "kubernetes/pods/pod_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "client/json_fields.h"
#include "kubernetes/api_server/backoff.h"

namespace tessera::kubernetes {

using client::Field;
using client::TextField;

namespace {

constexpr std::chrono::seconds kOnceMore{1};

// Whether it will be the same whenever it is tried. Other errors are of the way there.
bool IsRefusal(int code) {
  return code == EINVAL || code == ERANGE || code == ENOSPC || code == ENOENT || code == EPERM;
}

std::string NameOf(const Json& pod) {
  const Json& metadata = Field(pod, "metadata");
  return TextField(metadata, "namespace") + "/" + TextField(metadata, "name");
}

}  // namespace

PodWatch::PodWatch(const std::string& node, const ApiServerAccess& access, ClaimPreparer& preparer,
                   StatusWriter& status)
    : path_("/api/v1/pods?fieldSelector=spec.nodeName%3D" + node +
            "%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"),
      server_(access),
      preparer_(preparer),
      status_(status) {
  follows_ = std::thread([this] { Follow(); });
  changes_ = std::thread([this] { Change(); });
}

PodWatch::~PodWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  server_.Stop();
  follows_.join();
  changes_.join();
}

void PodWatch::Follow() {
  std::string told;  // the last complaint
  Backoff backoff;
  for (;;) {
    const auto begin = std::chrono::steady_clock::now();
    const auto pods = server_.Get(path_);
    Result<void> followed = pods ? Result<void>() : std::unexpected(pods.error());
    if (pods) {
      TakeAll(Field(*pods, "items"));
      followed = server_.Watch(path_, TextField(Field(*pods, "metadata"), "resourceVersion"),
                               [this](const std::string& type, const Json& pod) { Take(type, pod); });
    }
    if (const std::string complaint = followed ? "" : followed.error().Text(); complaint != told) {
      if (!complaint.empty()) std::fprintf(stderr, "tessera-kubelet: pods: %s\n", complaint.c_str());
      told = complaint;
    }
    const auto wait = backoff.After(std::chrono::steady_clock::now() - begin);
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, wait, [this] { return stopped_; })) return;
  }
}

// At once: what a pod asked for is taken back when it is not among them.
void PodWatch::TakeAll(const Json& pods) {
  std::map<std::string, std::vector<AskedChange>> all;
  for (const Json& pod : pods) {
    if (auto asked = ChangesAskedBy(pod); !asked.empty()) all[NameOf(pod)] = std::move(asked);
  }
  {
    const std::lock_guard lock(mutex_);
    asked_ = std::move(all);
    kicked_ = true;
  }
  changed_.notify_all();
}

void PodWatch::Take(const std::string& type, const Json& pod) {
  std::vector<AskedChange> asked = type == "DELETED" ? std::vector<AskedChange>() : ChangesAskedBy(pod);
  {
    const std::lock_guard lock(mutex_);
    std::string name = NameOf(pod);
    if (asked.empty()) {
      if (asked_.erase(name) == 0) return;
    } else {
      asked_[std::move(name)] = std::move(asked);
    }
    kicked_ = true;
  }
  changed_.notify_all();
}

std::map<PodWatch::Claim, AskedChange> PodWatch::Wanted() const {
  std::map<Claim, AskedChange> wanted;
  for (const auto& [pod, asked] : asked_) {
    for (const AskedChange& each : asked) wanted.try_emplace({each.namespace_name, each.claim}, each);
  }
  return wanted;
}

// Again after a while, where a claim is not prepared yet or the daemon does not answer.
void PodWatch::Change() {
  bool all = true;
  for (;;) {
    std::unique_lock lock(mutex_);
    const auto due = [this] { return stopped_ || kicked_; };
    if (all) {
      changed_.wait(lock, due);
    } else {
      changed_.wait_for(lock, kOnceMore, due);
    }
    if (stopped_) return;
    kicked_ = false;
    const auto wanted = Wanted();
    lock.unlock();
    all = ChangeAll(wanted);
  }
}

// Whether nothing is left to be done. What is refused is not asked for again.
bool PodWatch::ChangeAll(const std::map<Claim, AskedChange>& wanted) {
  bool all = true;
  std::map<std::string, std::string> refused;
  for (const auto& [claim, asked] : wanted) {
    const std::string uid = preparer_.UidOf(claim.first, claim.second);
    const auto prepared = preparer_.Find(uid);
    if (!prepared) {
      all = false;
      continue;
    }
    const auto before = refused_.find(uid);
    const bool no = before != refused_.end() && before->second == asked.config;
    if (no) refused.insert(*before);
    if (no || prepared->change == asked.config) continue;
    switch (ChangeOne(uid, claim, asked.config, fmt::format("{} of pod {}", kConfigAnnotation, asked.pod))) {
      case Outcome::kDone:
        break;
      case Outcome::kRefused:
        refused[uid] = asked.config;
        break;
      case Outcome::kLater:
        all = false;
    }
  }
  refused_ = std::move(refused);
  for (const auto& [uid, prepared] : preparer_.ChangedClaims()) {
    const Claim claim{prepared.namespace_name, prepared.name};
    if (!wanted.contains(claim) && ChangeOne(uid, claim, "", "") == Outcome::kLater) all = false;
  }
  return all;
}

PodWatch::Outcome PodWatch::ChangeOne(const std::string& uid, const Claim& claim, const std::string& config,
                                      const std::string& by) {
  const auto changed = preparer_.Change(uid, config);
  if (!changed && !IsRefusal(changed.error().code)) return Outcome::kLater;
  const std::string what = !changed ? changed.error().Text() : (config.empty() ? "to what the claim says" : "by " + by);
  status_.Tell(claim.first, claim.second, uid, {kChanged, changed.has_value(), changed ? "Applied" : "Refused", what});
  std::fprintf(stderr, "tessera-kubelet: claim %s/%s: %s %s\n", claim.first.c_str(), claim.second.c_str(),
               changed ? "changed" : "not changed:", what.c_str());
  return changed ? Outcome::kDone : Outcome::kRefused;
}

}  // namespace tessera::kubernetes
