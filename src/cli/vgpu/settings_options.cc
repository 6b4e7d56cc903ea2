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
  app.add_option("--memory", settings.memory,
                 "most GPU memory: 20G, 512M, 25% (of the GPU),\nmax (what is left; default); 20G:40G for 20 GiB on\n"
                 "the GPU and 40 GiB in all, the rest in host memory")
      ->type_name("LIMIT[:MAX]")
      ->check(IsSetting(&VgpuSettings::memory));
  app.add_option("--swap-max", settings.swap_max,
                 "most memory that may lie in host memory (default\nmax: what there is)")
      ->type_name("SIZE")
      ->check(IsSetting(&VgpuSettings::swap_max));
  app.add_option("--compute", settings.compute,
                 "share of the GPU's time: 30 for 30 %, never less\nwhen wanted and never more; 30:100 for at least\n"
                 "30 % and what is idle besides (default 0:100)")
      ->type_name("REQUEST[:LIMIT]")
      ->check(IsSetting(&VgpuSettings::compute));
  app.add_option("--weight", settings.weight, "share of the time that nobody was promised,\n1 to 10000 (default 100)")
      ->type_name("WEIGHT")
      ->check(IsSetting(&VgpuSettings::weight));
  app.add_option("--priority", settings.priority,
                 "0 to 15 (default 8): while a vGPU of a lower\nnumber has work, those of higher ones wait")
      ->type_name("PRIORITY")
      ->check(IsSetting(&VgpuSettings::priority));
}

Result<VgpuSettings> ReadSettings(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  VgpuSettings settings;
  CLI::App app;
  app.set_help_flag("");
  AddSettings(app, settings);
  const std::string use = "use --memory, --swap-max, --compute, --weight or --priority";
  std::reverse(words.begin(), words.end());  // CLI11 takes words from the back
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining(true);
    if (unknown.empty()) return Fail(EINVAL, error.what());
    return Fail(EINVAL, "'" + unknown.front() + "' is no setting", use);
  }
  if (settings.Empty()) return Fail(EINVAL, "nothing to set", use);
  return settings;
}

}  // namespace tessera::cli
