#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/vgpu/settings.h"

namespace tessera::cli {

// Makes an option's values pass `parse`, whose error is the message.
template <typename Parse>
CLI::Validator Checked(Parse parse) {
  return CLI::Validator(
      [parse](std::string& text) {
        const auto result = parse(text);
        return result ? std::string() : result.error().Text();
      },
      "");
}

// As Checked, for a setting of a vGPU.
CLI::Validator IsSetting(std::string VgpuSettings::* field);

// The options that say what a vGPU is to be like, but for its GPU.
void AddSettings(CLI::App& app, VgpuSettings& settings);

// The words of a line, such as "--memory 4G --compute 20:40", as `tessera vgpu set` takes them. EINVAL for a word that
// is none of its options, or whose value makes no sense.
Result<VgpuSettings> ReadSettings(const std::string& line);

}  // namespace tessera::cli
