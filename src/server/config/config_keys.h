#pragma once

#include <toml++/toml.h>

#include <functional>
#include <string>
#include <vector>

#include "server/config/config.h"

namespace tessera::server {

// One key of the configuration. The reference, the manual page and the example are made from the table of them
// (config_reference.h), so that what they say is so.
struct ConfigKey {
  // Puts the value into the configuration. Null: done; else the form that the value must have, for the message.
  using Set = std::function<const char*(const toml::node&, Config&)>;

  const char* name;  // with NAME where each user, group or vGPU has a section; Set is for the last one of the list then
  const char* standard;                     // the default, as TOML
  const char* standard_in_words = nullptr;  // where TOML does not say it; Markdown, as the next two
  const char* values;
  const char* meaning;
  bool live = false;  // takes effect when the configuration is read again; else when the daemon starts
  Set set;
};

// All, in the order of the reference. Each of the parts is in a file of its own.
const std::vector<ConfigKey>& ConfigKeys();
std::vector<ConfigKey> TimeKeys();     // sched, channels, priority, client
std::vector<ConfigKey> MemoryKeys();   // memory, swap, turn, drain, rebalance
std::vector<ConfigKey> ApiKeys();      // api, access, files
std::vector<ConfigKey> SectionKeys();  // a section for each NAME: quota, vgpu

}  // namespace tessera::server
