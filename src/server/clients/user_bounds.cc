#include "server/clients/user_bounds.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace tessera::server {

UserBounds::Most UserBounds::ForDescriptors(std::size_t all) {
  Most most;
  most.descriptors = all / 4;
  most.gated_processes = std::min<std::size_t>(most.descriptors / 4, 4096);
  return most;
}

UserBounds::Most UserBounds::Usual() {
  rlimit limit{};
  return ForDescriptors(getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024);
}

UserBounds::Claim& UserBounds::Claim::operator=(Claim&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  bounds_ = std::exchange(other.bounds_, nullptr);
  uid_ = other.uid_;
  kind_ = other.kind_;
  descriptors_ = other.descriptors_;
  return *this;
}

void UserBounds::Claim::GiveBack() {
  if (bounds_) std::exchange(bounds_, nullptr)->GiveBack(*this);
}

Result<UserBounds::Claim> UserBounds::Take(uid_t uid, Kind kind, unsigned descriptors) {
  Use& use = uses_[uid];
  std::size_t& count = use.count[static_cast<std::size_t>(kind)];
  const auto full = [uid](const std::string& what, const char* hint) {
    return Fail(EMFILE, fmt::format("user {} has {} already, as many as one user may have", uid, what), hint);
  };
  if (kind == Kind::kGated && count >= For(uid, most_.gated))
    return full(fmt::format("{} programs under the kernel gate", count), "end some of them");
  if (use.descriptors + descriptors > For(uid, most_.descriptors))
    return full(fmt::format("{} of the daemon's file descriptors", use.descriptors),
                "end some of the programs, or raise LimitNOFILE of tesserad");
  ++count;
  use.descriptors += descriptors;
  Claim claim;
  claim.bounds_ = this;
  claim.uid_ = uid;
  claim.kind_ = kind;
  claim.descriptors_ = descriptors;
  return claim;
}

std::size_t UserBounds::CountOf(uid_t uid, Kind kind) const {
  const auto use = uses_.find(uid);
  return use == uses_.end() ? 0 : use->second.count[static_cast<std::size_t>(kind)];
}

void UserBounds::GiveBack(const Claim& claim) {
  const auto found = uses_.find(claim.uid_);
  Use& use = found->second;
  --use.count[static_cast<std::size_t>(claim.kind_)];
  use.descriptors -= claim.descriptors_;
  if (!use.Any()) uses_.erase(found);
}

std::shared_ptr<std::atomic<std::int64_t>> UserBounds::GatedProcesses(uid_t uid) {
  Use& use = uses_[uid];
  if (auto budget = use.gated_processes.lock()) return budget;
  auto budget = std::make_shared<std::atomic<std::int64_t>>(static_cast<std::int64_t>(For(uid, most_.gated_processes)));
  use.gated_processes = budget;
  return budget;
}

}  // namespace tessera::server
