#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/api_client.h"
#include "cli/json.h"
#include "cli/top/top_session.h"

namespace tessera::cli::top {

// {"time_us", "gpus", "vgpus", "processes"}: all that the daemon tells, and when (wall clock).
Result<Json> Ask(const ApiClient& client);

// Asks the daemon again and again and brings it orders, in two threads, so that neither keys nor figures wait for an
// order that takes long, nor anything for a daemon that hangs. Used by one thread.
class Daemon {
 public:
  Daemon(const std::string& run_dir, Nanos delay);
  ~Daemon();  // leaves what is under way, within ApiClient::kStopSeconds
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // One after the other. Each is followed by a question, so that whoever is told that it is done sees it done.
  void Do(Order order);

  struct News {
    std::optional<Result<Json>> answer;                // the newest
    Nanos at = 0;                                      // when it was asked for
    std::vector<std::pair<Order, Result<Json>>> done;  // before that
  };
  // What came since the last call.
  News Take();
  // Can be read when there are news.
  int news_fd() const { return news_fd_.Get(); }

 private:
  void AskAgainAndAgain(std::stop_token stop);
  void WorkOff(std::stop_token stop);
  void Tell() const;

  const Nanos delay_;
  const UniqueFd stop_fd_, news_fd_;
  const ApiClient client_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable_any changed_;
  std::deque<Order> orders_;
  std::vector<std::pair<Order, Result<Json>>> done_;  // since it was last asked
  News news_;

  std::jthread asking_, working_;  // last, so that they end first
};

}  // namespace tessera::cli::top
