#pragma once

#include <array>
#include <cstddef>
#include <set>
#include <utility>

#include "base/clock.h"
#include "server/time/time_server.h"

namespace tessera::server {

// vGPUs of one GPU that stand still for others, by who wants that. The time server is told of all together. Runs on the
// loop's thread.
class Aside {
 public:
  using Id = sched::VgpuId;
  enum class For : std::size_t {
    kAudit,  // another vGPU's speed is measured
    kGang,   // a job on several GPUs has the turn
  };

  // This server divides the time from now on, and has set nobody aside. It outlives the next call of this.
  void Serve(TimeServer& server, Nanos now) {
    server_ = &server;
    told_.clear();
    Tell(now);
  }

  // These, and no others for this reason.
  void Set(For reason, std::set<Id> ids, Nanos now) {
    sets_[static_cast<std::size_t>(reason)] = std::move(ids);
    Tell(now);
  }
  bool Has(For reason, Id id) const { return sets_[static_cast<std::size_t>(reason)].contains(id); }

 private:
  void Tell(Nanos now) {
    std::set<Id> all;
    for (const std::set<Id>& ids : sets_) all.insert(ids.begin(), ids.end());
    if (all == told_) return;
    told_ = std::move(all);
    server_->SetAside(told_, now);
  }

  TimeServer* server_ = nullptr;
  std::array<std::set<Id>, 2> sets_;
  std::set<Id> told_;
};

}  // namespace tessera::server
