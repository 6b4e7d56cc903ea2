#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "base/clock.h"

namespace tessera::server {

// Bounds how many events the programs of one user cause, so that nobody's programs push what others did out of the
// events that are kept. A bucket of tokens for each user. Not thread-safe.
class EventBudget {
 public:
  static constexpr double kBurst = 500;  // a quarter of what is kept
  static constexpr double kPerSecond = 5;

  enum class Verdict {
    kTell,
    kTellLast,  // and that later ones are left out
    kLeaveOut,
  };
  Verdict Ask(uid_t uid, Nanos now) {
    Bucket& bucket = buckets_.try_emplace(uid, Bucket{.at = now}).first->second;
    bucket.tokens = std::min(kBurst, bucket.tokens + static_cast<double>(now - bucket.at) / kSecond * kPerSecond);
    bucket.at = now;
    if (bucket.tokens < 1) return Verdict::kLeaveOut;
    bucket.tokens -= 1;
    if (bucket.tokens > kBurst / 2) bucket.said = false;
    const bool last = bucket.tokens < 1 && !std::exchange(bucket.said, true);
    const Verdict verdict = last ? Verdict::kTellLast : Verdict::kTell;
    // Full buckets need not be kept.
    if (buckets_.size() > kMostUsers)
      std::erase_if(buckets_, [now](const auto& each) { return now - each.second.at > kBurst / kPerSecond * kSecond; });
    return verdict;
  }

 private:
  static constexpr std::size_t kMostUsers = 1024;
  struct Bucket {
    double tokens = kBurst;
    Nanos at = 0;       // when tokens was right
    bool said = false;  // that more are left out, since it was half full
  };
  std::map<uid_t, Bucket> buckets_;
};

}  // namespace tessera::server
