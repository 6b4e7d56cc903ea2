#include "kubernetes/claims/status_writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "client/json_fields.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/objects/no_answer.h"

namespace tessera::kubernetes {

using client::Field;
using client::TextField;

namespace {

constexpr int kMostTries = 5;
constexpr std::chrono::seconds kAgain{1};

}  // namespace

StatusWriter::StatusWriter(std::string pool, ApiServer& server,
                           std::function<std::optional<PreparedClaim>(const std::string& uid)> prepared)
    : pool_(std::move(pool)), server_(server), prepared_(std::move(prepared)) {
  thread_ = std::thread([this] { Run(); });
}

StatusWriter::~StatusWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StatusWriter::Tell(const std::string& namespace_name, const std::string& name, const std::string& uid,
                        Condition condition) {
  {
    const std::lock_guard lock(mutex_);
    Key key{uid, condition.type};
    waiting_[std::move(key)] = {.namespace_name = namespace_name, .name = name, .condition = std::move(condition)};
  }
  changed_.notify_all();
}

void StatusWriter::Run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (stopped_) return;
    const auto [key, told] = *waiting_.begin();
    waiting_.erase(waiting_.begin());
    lock.unlock();
    const auto written = Write(key.first, told);
    lock.lock();
    if (written) continue;
    if (told.tries + 1 == kMostTries) {
      std::fprintf(stderr, "tessera-kubelet: status of claim %s/%s: %s\n", told.namespace_name.c_str(),
                   told.name.c_str(), written.error().Text().c_str());
      continue;
    }
    // Unless there is news meanwhile.
    const auto [again, added] = waiting_.try_emplace(key, told);
    if (added) ++again->second.tries;
    changed_.wait_for(lock, kAgain, [this] { return stopped_; });
  }
}

// A claim that is gone, or another one of its name, needs nothing.
Result<void> StatusWriter::Write(const std::string& uid, const Told& told) const {
  const std::string path =
      fmt::format("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", told.namespace_name, told.name);
  const auto claim = server_.Get(path);
  if (!claim) return claim.error().code == ENOENT ? Result<void>() : NoAnswer(claim);
  if (TextField(Field(*claim, "metadata"), "uid") != uid) return {};
  const auto prepared = prepared_(uid);
  const std::string now = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  const Json body = StatusWith(told.condition, *claim, pool_, prepared ? &*prepared : nullptr, now);
  if (body.is_null()) return {};
  return NoAnswer(server_.Apply(path + "/status", kDriver, body));
}

}  // namespace tessera::kubernetes
