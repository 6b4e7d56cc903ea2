#pragma once

#include <optional>
#include <string>
#include <variant>

#include "base/result.h"

namespace tessera::server {

// The command line of tesserad.
struct Options {
  std::string config;                    // file; empty: /etc/tessera/tesserad.toml if it is there
  std::optional<std::string> soft_spec;  // serve soft GPUs; empty text: their default, or what is there
  std::string run_dir;                   // empty: base/install/run_dir.h decides
  std::string state_dir;                 // empty: base/install/state_dir.h decides
  bool exit_when_idle = false;
  std::string log_level = "info";
};

// The options, or the exit status after --help, --version or an error that was printed: 0 or 2.
std::variant<Options, int> ParseOptions(int argc, char** argv);

}  // namespace tessera::server
