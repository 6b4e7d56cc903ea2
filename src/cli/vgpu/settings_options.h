#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/vgpu/settings.h"

namespace tessera::cli {

// Validates an option's value by `parse`, whose error becomes the message.
template <typename Parse>
CLI::Validator Checked(Parse parse) {
  return CLI::Validator(
      [parse](std::string& text) {
        const auto result = parse(text);
        return result ? std::string() : result.error().Text();
      },
      "");
}

// The same for a setting of a vGPU.
CLI::Validator IsSetting(std::string VgpuSettings::* field);

// Adds the options for settings of a vGPU, except its GPU and its space.
void AddSettings(CLI::App& app, VgpuSettings& settings);
// Adds the option for the space of a vGPU that is made.
CLI::Option* AddSpace(CLI::App& app, VgpuSettings& settings);

// Reads a line such as "--memory 4G --compute 20:40", with the options of `tessera vgpu set`. EINVAL for an unknown
// option or an invalid value.
Result<VgpuSettings> ReadSettings(const std::string& line);

}  // namespace tessera::cli
