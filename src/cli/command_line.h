// The command line: chooses a command, and runs it or explains what is wrong. The commands are in commands.h.
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

// The code of a command. Its value is the exit status; an Error is printed, and the exit status is `error_status`.
using Action = std::function<Result<int>()>;

struct CommandLine {
  CommandLine();

  // Chooses a command and sets `action`. Returns an exit status if nothing is left to do: help was shown, or the words
  // were wrong and a line on stderr says so.
  std::optional<int> Choose(std::vector<std::string> words);
  // Chooses a command, runs it, and prints its error on stderr. Returns the exit status.
  int Run(int argc, char** argv);

  // Keeps the choices of a command, which its options and its action refer to, as long as this object lives.
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
  int usage_status = 2;              // when its words are wrong

 private:
  // Moves the words from `begin` on into `program`.
  void TakeProgram(std::vector<std::string>& words, std::size_t begin);
  // One line about what is wrong with the words.
  Error Explain(const CLI::ParseError& error) const;

  std::vector<std::shared_ptr<void>> kept_;
};

// Adds every command of Tessera to the command line.
void AddCommands(CommandLine& line);

// The index in `words`, from `begin` on, of the first word that is neither an option of `command` nor its value: there
// the program begins in "run --memory 2G python --help". words.size() if there is none.
std::size_t ProgramBegin(const CLI::App& command, const std::vector<std::string>& words, std::size_t begin);

}  // namespace tessera::cli
