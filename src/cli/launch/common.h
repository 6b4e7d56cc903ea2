#pragma once

#include <string>

#include "base/result.h"

namespace tessera::cli {

// Choices that most commands share.
struct Common {
  std::string run_dir;  // as given; empty: by the rule of tessera::RunDir
  bool soft = false;
  std::string soft_spec;  // of --soft=SPEC; empty: the soft GPU as it is, or its defaults
  bool json = false;
  std::string config;  // of a daemon that is started; empty: the one that it finds

  // The daemon's directory, absolute.
  std::string RunDirectory() const;
};

}  // namespace tessera::cli
