// Parts that the descriptions of several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/vgpu/settings.h"

namespace tessera::cli {

// The common options that a command takes.
enum Takes : unsigned { kRunDir = 1, kSoft = 2, kJson = 4, kDaemon = kRunDir | kSoft, kAll = kDaemon | kJson };

void AddCommon(CLI::App& app, Common& common, unsigned takes);
// One or more processes or vGPUs, which TargetPath understands.
void AddTargets(CLI::App& app, std::vector<std::string>& targets);
CLI::App& AddCommand(CLI::App& parent, const char* name, const char* description, const char* footer);
// Makes `action` that of the command line when `command` is chosen.
void Does(CommandLine& line, CLI::App& command, const Action& action);
CLI::Option* AddGpu(CLI::App& app, VgpuSettings& settings);
CLI::Option* AddVgpuName(CLI::App& app, std::string& name);

}  // namespace tessera::cli
