// tessera: the command line.
#include "cli/command_line.h"

int main(int argc, char** argv) {
  tessera::cli::CommandLine line;
  AddCommands(line);
  return line.Run(argc, argv);
}
