#include "cli/command_options.h"

#include "cli/commands/targets.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {

void AddTargets(CLI::App& app, std::vector<std::string>& targets) {
  app.add_option("PID|VGPU...", targets)->required()->expected(1, -1)->type_name("VGPU")->check(Checked(TargetPath));
}

void AddCommon(CLI::App& app, Common& common, unsigned takes) {
  if (takes & kRunDir) {
    app.add_option("--run-dir", common.run_dir, "directory of the daemon's sockets")->type_name("DIR");
  }
  if (takes & kSoft) {
    const char* const text = "use soft GPUs, which run on the CPU; SPEC, such as\n2x16GiB, is their number and memory";
    app.add_flag("--soft{default}", text)->type_name("SPEC")->each([&common](const std::string& spec) {
      common.soft = true;
      common.soft_spec = spec == "default" ? "" : spec;
    });
  }
  if (takes & kJson) app.add_flag("--json", common.json, "print JSON");
}

CLI::App& AddCommand(CLI::App& parent, const char* name, const char* description, const char* footer) {
  CLI::App& command = *parent.add_subcommand(name, description);
  command.footer(footer);
  return command;
}

void Does(CommandLine& line, CLI::App& command, const Action& action) {
  command.callback([&line, action] { line.action = action; });
}

CLI::Option* AddGpu(CLI::App& app, VgpuSettings& settings) {
  return app.add_option("--gpu", settings.gpu, "index, UUID, or auto (default): the GPU with the\nmost free memory")
      ->type_name("GPU")
      ->check(IsSetting(&VgpuSettings::gpu));
}

CLI::Option* AddVgpuName(CLI::App& app, std::string& name) {
  return app.add_option("NAME", name)->required()->type_name("VGPU")->check(Checked(CheckName));
}

}  // namespace tessera::cli
