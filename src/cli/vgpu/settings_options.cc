#include "cli/vgpu/settings_options.h"

#include <algorithm>
#include <sstream>

namespace tessera::cli {

CLI::Validator IsSetting(std::string VgpuSettings::* field) {
  return Checked([field](const std::string& text) {
    VgpuSettings settings;
    settings.*field = text;
    return CheckSettings(settings);
  });
}

void AddSettings(CLI::App& app, VgpuSettings& settings) {
  app.add_option(
         "--memory", settings.memory,
         "maximum GPU memory: 20G, 512M, 25% (of the GPU), max\n(all of it; default). 20G:40G: 20 GiB on the GPU and\n"
         "40 GiB in all, the rest in host memory")
      ->type_name("LIMIT[:MAX]")
      ->check(IsSetting(&VgpuSettings::memory));
  app.add_option("--memory-request", settings.memory_request,
                 "GPU memory that is promised: 20G, 25% (default 0).\nOthers may use it until it is needed")
      ->type_name("SIZE")
      ->check(IsSetting(&VgpuSettings::memory_request));
  app.add_option("--swap-max", settings.swap_max, "maximum memory in host memory (default max: as much\nas there is)")
      ->type_name("SIZE")
      ->check(IsSetting(&VgpuSettings::swap_max));
  app.add_option(
         "--compute", settings.compute,
         "share of the GPU's time. 30: 30 % whenever there is\nwork, and never more. 30:100: at least 30 %, and more\n"
         "when others are idle (default 0:100)")
      ->type_name("REQUEST[:LIMIT]")
      ->check(IsSetting(&VgpuSettings::compute));
  app.add_option("--weight", settings.weight, "part of the time that is promised to no vGPU,\n1 to 10000 (default 100)")
      ->type_name("WEIGHT")
      ->check(IsSetting(&VgpuSettings::weight));
  app.add_option("--priority", settings.priority,
                 "0 to 15 (default 8); while a vGPU with a lower number\nhas work, those with higher numbers wait")
      ->type_name("PRIORITY")
      ->check(IsSetting(&VgpuSettings::priority));
  app.add_option(
         "--goal", settings.goal,
         "goal for its own speed. p99=20ms: 99 % of its bursts of\nwork end within 20 ms; speed=80%: 80 % of its "
         "speed alone;\nnone (default)")
      ->type_name("GOAL");
  app.add_option("--gang", settings.gang,
                 "vGPUs of a gang, which you have on several GPUs, have\ntheir turns together: one for each rank of a "
                 "job. none\n(default)")
      ->type_name("NAME")
      ->check(IsSetting(&VgpuSettings::gang));
  app.add_option("--label", settings.labels,
                 "label of its metrics, such as team=a; repeat it for\nseveral, at most 8. They replace those that it "
                 "has.\nnone: no labels")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  app.add_option("--sm", settings.sm, "GPU's SMs that it uses at most, in % (default 100);\nneeds a space")
      ->type_name("PERCENT")
      ->check(IsSetting(&VgpuSettings::sm));
  app.add_flag_function(
      "--sm-burst,!--no-sm-burst", [&settings](std::int64_t count) { settings.sm_burst = count > 0; },
      "with --reserve-sm: it may use all SMs while no other vGPU\nof its space has programs");
}

CLI::Option* AddSpace(CLI::App& app, VgpuSettings& settings) {
  app.add_flag("--reserve-sm", settings.reserve_sm,
               "these SMs (--sm) are its own: no other vGPU of the space\nuses them. All vGPUs of a space have it, or "
               "none has");
  return app
      .add_option(
          "--space", settings.space,
          "space of vGPUs that run at the same time, each on\nits part of the SMs (--sm). It is made if there is none")
      ->type_name("NAME")
      ->excludes(app.get_option("--gang"))
      ->check(IsSetting(&VgpuSettings::space));
}

Result<VgpuSettings> ReadSettings(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  VgpuSettings settings;
  CLI::App app;
  app.set_help_flag("");
  AddSettings(app, settings);
  const std::string use =
      "use --memory, --memory-request, --swap-max, --compute, --weight, --priority, --goal, --gang, --label, --sm or "
      "--sm-burst";
  std::reverse(words.begin(), words.end());  // CLI11 takes words from the back
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining(true);
    if (unknown.empty()) return Fail(EINVAL, error.what());
    return Fail(EINVAL, "unknown setting '" + unknown.front() + "'", use);
  }
  if (settings.Empty()) return Fail(EINVAL, "nothing to set", use);
  return settings;
}

}  // namespace tessera::cli
