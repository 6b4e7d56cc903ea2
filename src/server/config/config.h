#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sched/steering/steering.h"
#include "sched/tokens/token_scheduler.h"
#include "sched/turns/residency.h"
#include "server/access/quota.h"
#include "server/config/declared_vgpu.h"

namespace tessera::server {

// The configuration of the daemon. docs/reference/config.md describes the keys.
struct Config {
  sched::Config sched;                 // sched.window_ms, sched.min_slice_ms
  Nanos in_flight = 2 * kMillisecond;  // sched.in_flight_ms: queued work while others wait
  bool steer_channels = true;          // channels.control: "auto" or "off"
  // channels.mode, channels.slice_ms, priority.min_share, and what `sched`, `soft_priority` and `patience` say
  sched::SteeringConfig steering;
  bool try_spaces = true;                   // sched.space_mode: "auto" or "at_once"
  bool soft_priority = false;               // priority.mode: "strict" or "soft"
  Nanos patience = 100 * kMicrosecond;      // priority.patience_us, of vGPUs that state none where the mode is soft
  Nanos priority_spin = 50 * kMillisecond;  // priority.spin_ms: how long the daemon looks for news without a pause
  Nanos client_grace = 30 * kSecond;        // client.grace_s: how long programs go on without a daemon
  bool block_on_daemon_loss = false;        // client.on_daemon_loss: "continue" or "block" after that
  std::string memory_reserve;               // memory.reserve: size or percentage; empty: the driver's default
  std::string swap_size;                    // swap.size: of all pools together; empty: half of the free RAM; "0": none
  std::string swap_file;                    // swap.file: path of what may hold more than swap.size; empty: nothing
  std::string swap_file_size;               // swap.file_size: of all GPUs' files together
  std::string swap_prepare;                 // swap.prepare: of these, made ahead; empty or "auto": what could be needed
  std::string swap_floor;                   // swap.floor: RAM that stays free; empty: the mover's default
  std::string suspend_dir;                  // suspend.dir; empty: in the daemon's state directory
  Nanos suspend_idle = 0;                   // suspend.idle: who is idle for so long is suspended; 0: nobody
  bool suspend_idle_to_file = false;        // suspend.idle_to: "memory" or "file"
  sched::ResidencyConfig residency;         // turn.min_ms, turn.max_ms, swap.on_host_s
  bool drain_on_xid = false;                // drain.on_xid: a fault of the GPU itself drains it
  bool rebalance_auto = false;              // rebalance.auto: vGPUs move to make room for a new one
  bool rebalance_load = false;              // rebalance.load: vGPUs leave GPUs that are asked for too much time
  bool files = true;                        // files.enabled: the tree of files in <run-dir>/fs
  std::string api_group = "tessera";        // api.group: the group of operators, besides root
  bool access_users = true;                 // access.users: other users may use API and files for what is theirs
  bool access_totals = true;                // access.totals: they see the GPUs' totals
  std::string api_listen;                   // api.listen: ADDRESS:PORT of the API by TCP; empty: api.sock alone
  std::string api_token_file;               // api.token_file: path of the token that TCP needs

  std::vector<Quota> quotas;        // [quota.NAME], as they stand in the file
  std::vector<DeclaredVGpu> vgpus;  // [vgpu.NAME]

  std::map<std::string, std::string> given;  // what the file says, key by key, as TOML
};

// Reads a TOML file. Anything that it does not know is refused with the nearest key that exists.
Result<Config> LoadConfig(const std::string& path);

// The same for text; `source` names it in messages.
Result<Config> ParseConfig(std::string_view text, const std::string& source);

// A key whose value is another one, as TOML; the default where the file does not say it.
struct ConfigChange {
  std::string key, from, to;
  bool live = false;  // it can take effect in a daemon that runs; else when one starts
};
std::vector<ConfigChange> Difference(const Config& before, const Config& after);

// The running configuration, with those values of `read` that can take effect at once. An error where these do not go
// together.
Result<Config> MergeLive(const Config& running, const Config& read);

}  // namespace tessera::server
