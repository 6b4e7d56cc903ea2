#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/top/top_session.h"
#include "client/api_client.h"
#include "client/json.h"

namespace tessera::cli::top {

// {"time_us", "gpus", "vgpus", "processes"}: the daemon's figures and their wall clock time.
Result<client::Json> Ask(const client::ApiClient& client);

// Polls the daemon and sends it orders, in two threads, so that neither keys nor figures wait for a slow order, and
// nothing waits for a daemon that hangs. Used by one thread.
class Daemon {
 public:
  Daemon(const std::string& run_dir, Nanos delay);
  ~Daemon();  // cancels requests that are under way, within ApiClient::kStopSeconds
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Orders are carried out one after the other. Each is followed by a question, so that its effect is visible when News
  // says that it is done.
  void Do(Order order);

  struct News {
    std::optional<Result<client::Json>> answer;                // the newest figures
    Nanos at = 0;                                              // when it was asked for
    std::vector<std::pair<Order, Result<client::Json>>> done;  // before that
  };
  // The news since the last call.
  News Take();
  // Readable when there are news.
  int news_fd() const { return news_fd_.Get(); }

 private:
  void AskAgainAndAgain();
  void WorkOff();
  void Tell() const;

  const Nanos delay_;
  const UniqueFd stop_fd_, news_fd_;
  const client::ApiClient client_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ TESSERA_GUARDED_BY(mutex_) = false;
  std::deque<Order> orders_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::pair<Order, Result<client::Json>>> done_ TESSERA_GUARDED_BY(mutex_);  // since the last question
  News news_ TESSERA_GUARDED_BY(mutex_);

  std::thread asking_, working_;
};

}  // namespace tessera::cli::top
