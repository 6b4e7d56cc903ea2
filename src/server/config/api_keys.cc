#include <string>

#include "server/config/config_keys.h"

namespace tessera::server {
namespace {

using Set = ConfigKey::Set;

Set Switch(bool Config::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto value = node.value_exact<bool>();
    if (!value) return "true or false";
    config.*field = *value;
    return nullptr;
  };
}

const char* SetApiGroup(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text) return "the name of a group, or \"\" for none";
  config.api_group = *text;
  return nullptr;
}

const char* SetApiListen(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || (!text->empty() && text->rfind(':') == std::string::npos))
    return "an address with a port (\"127.0.0.1:9477\", \"[::1]:9477\"), or \"\" for none";
  config.api_listen = *text;
  return nullptr;
}

const char* SetApiTokenFile(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || (!text->empty() && !text->starts_with('/'))) return "the path of a file from /";
  config.api_token_file = *text;
  return nullptr;
}

}  // namespace

std::vector<ConfigKey> ApiKeys() {
  return {
      {.name = "api.group",
       .standard = "\"tessera\"",
       .values = "name of a group",
       .meaning = "group of operators, who may do everything that root may, by API, CLI and files. Without such a "
                  "group, and for "
                  "daemons of other users, the daemon's own user is the only one besides root",
       .set = SetApiGroup},
      {.name = "api.listen",
       .standard = "\"\"",
       .standard_in_words = "`\"\"`: none",
       .values = "address and port, such as `\"127.0.0.1:9477\"` or `\"[::1]:9477\"`",
       .meaning = "address at which the API is served by TCP as well, for [Prometheus](../prometheus.md), the "
                  "[live page](../page.md) and tools of other machines. "
                  "HTTP without encryption: for the loopback or behind a proxy that has it",
       .set = SetApiListen},
      {.name = "api.token_file",
       .standard = "\"\"",
       .standard_in_words = "none; needed with `api.listen`",
       .values = "path of a file, from `/`",
       .meaning =
           "the token that requests by TCP must show: one line of 16 to 256 visible characters, in a file that its "
           "owner alone may read. Its holder may do everything that the API can. `tessera reload` reads the token "
           "again",
       .set = SetApiTokenFile},
      {.name = "access.users",
       .standard = "true",
       .values = "`true`, `false`",
       .meaning =
           "every user of the node may use API, CLI and files for vGPUs and processes of their own, within a quota "
           "([security](../security-model.md#who-may-do-what)). For root's daemon; under systemd `tesserad-api.socket` "
           "must let them in as well",
       .set = Switch(&Config::access_users)},
      {.name = "access.totals",
       .standard = "true",
       .values = "`true`, `false`",
       .meaning = "these users see the GPUs' totals: capacity, used, promised, busy",
       .set = Switch(&Config::access_totals)},
      {.name = "files.enabled",
       .standard = "true",
       .values = "`true`, `false`",
       .meaning =
           "the tree of files in the run directory's `fs` ([files](../files.md)), where FUSE can be used. Daemons that "
           "`tessera run` started have none",
       .set = Switch(&Config::files)},
  };
}

}  // namespace tessera::server
