// How a command is chosen, refused or run. The commands are in commands.h.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// What the chosen command does. Its value is the exit status; an Error is printed and gives `error_status`.
using Action = std::function<Result<int>()>;

struct CommandLine {
  CommandLine();

  // Chooses a command and sets `action`. An exit status if that is all: help was shown, or the words were refused with
  // a line on stderr.
  std::optional<int> Choose(std::vector<std::string> words);
  // The same, then runs it, and prints its error on stderr; returns the exit status.
  int Run(int argc, char** argv);

  // Room for the choices of a command, which its options and its action refer to for as long as we live.
  template <typename Choices>
  Choices& Keep(Choices initial = {}) {
    auto choices = std::make_shared<Choices>(std::move(initial));
    kept_.push_back(choices);
    return *choices;
  }

  CLI::App app;
  Common common;
  Action action;                     // of the chosen command
  std::vector<std::string> program;  // of `tessera run`, with its arguments
  int error_status = 1;              // when the chosen command fails
  int usage_status = 2;              // when it was used wrong

 private:
  // Moves the words from `begin` on to `program`.
  void TakeProgram(std::vector<std::string>& words, std::size_t begin);
  // What the user did wrong, as one line.
  Error Explain(const CLI::ParseError& error) const;

  std::vector<std::shared_ptr<void>> kept_;
};

// Adds every command of Tessera to the command line.
void AddCommands(CommandLine& line);

// The index in `words`, from `begin` on, of the first that is neither an option of `command` nor the value of one:
// where the program begins in "run --memory 2G python --help". words.size() if there is none.
std::size_t ProgramBegin(const CLI::App& command, const std::vector<std::string>& words, std::size_t begin);

}  // namespace tessera::cli
