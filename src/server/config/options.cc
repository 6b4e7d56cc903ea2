#include "server/config/options.h"

#include <CLI/CLI.hpp>

namespace tessera::server {

std::variant<Options, int> ParseOptions(int argc, char** argv) {
  Options options;
  std::string soft_spec;
  CLI::App app("Shares GPUs between programs: lends them memory and time by vGPU.", "tesserad");
  app.set_version_flag("--version", "tesserad " TESSERA_VERSION);
  app.add_option("--config", options.config,
                 "configuration file (TOML); default /etc/tessera/tesserad.toml if it is there")
      ->type_name("FILE");
  auto* soft = app.add_option("--soft", soft_spec, "serve soft GPUs on the CPU, such as 2x16GiB, instead of real ones")
                   ->type_name("SPEC")
                   ->expected(0, 1);
  app.add_option("--run-dir", options.run_dir, "directory of the sockets; default $TESSERA_RUN_DIR, else by user")
      ->type_name("DIR");
  app.add_option("--state-dir", options.state_dir,
                 "directory of what outlives a boot; default by user, or the run directory")
      ->type_name("DIR");
  app.add_flag("--exit-when-idle", options.exit_when_idle, "end when no program and no owner of a vGPU is left");
  app.add_option("--log-level", options.log_level, "how much to log")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (*soft) options.soft_spec = soft_spec;
  return options;
}

}  // namespace tessera::server
