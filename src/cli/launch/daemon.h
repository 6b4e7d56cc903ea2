#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "client/api_client.h"

namespace tessera::cli {

// A daemon's answer to GET /healthz.
struct DaemonFacts {
  std::string version;
  int pid = 0;
  bool soft = false;      // it manages the soft GPU
  bool embedded = false;  // started by `tessera run`, ends with its last program
};

// ECONNREFUSED if none answers, EPROTO if it speaks another version of the protocol between programs and daemon.
Result<DaemonFacts> AskDaemon(const client::ApiClient& client);

// Finds the daemon in `common`'s run directory, and starts an embedded one if none answers. Several processes may do so
// at once: one daemon is started, and all of them get it. Blocks until it is ready. EINVAL if soft GPUs are wanted and
// the daemon manages real ones.
Result<DaemonFacts> EnsureDaemon(const Common& common);

}  // namespace tessera::cli
