#pragma once

#include <string>

#include "base/result.h"

namespace tessera::cli {

// Options that most commands share.
struct Common {
  std::string run_dir;  // as given; empty: by the rule of tessera::RunDir
  bool soft = false;
  std::string soft_spec;  // of --soft=SPEC; empty: the soft GPUs that exist, or the default
  bool json = false;
  std::string config;  // configuration file for a daemon that is started; empty: the one that it finds

  // The daemon's run directory, absolute.
  std::string RunDirectory() const;
};

}  // namespace tessera::cli
