// The commands, by subject. Help, manual, completion and the messages about wrong usage come from these descriptions.
#pragma once

#include "cli/command_line.h"

namespace tessera::cli {

void AddProgramCommands(CommandLine& line);   // run, ps, gpus, top
void AddSteeringCommands(CommandLine& line);  // freeze, thaw, evict, adopt
void AddMovingCommands(CommandLine& line);    // suspend, resume, migrate, gpu drain, gpu undrain, rebalance
void AddVgpuCommands(CommandLine& line);      // vgpu ls, show, create, set, rm
void AddSpaceCommands(CommandLine& line);     // space ls, show, create, rm
void AddDaemonCommands(CommandLine& line);    // events, trace, page, reload
void AddPlanCommand(CommandLine& line);       // plan
void AddMachineCommands(CommandLine& line);   // cdi, doctor, demo, bench, version

}  // namespace tessera::cli
