#include "base/install/own_program.h"

#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/install/environment.h"

namespace tessera {
namespace {

std::vector<char*> EnvironmentOf(const OwnProgram& program) {
  const auto is = [](std::string_view variable, std::string_view name) {
    return variable.starts_with(name) && variable.substr(name.size()).starts_with('=');
  };
  std::vector<char*> kept;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable(*at);
    const bool out = IsOfOtherPrograms(variable.substr(0, variable.find('='))) ||
                     std::ranges::any_of(program.without, [&](const std::string& name) { return is(*at, name); });
    if (!out) kept.push_back(*at);
  }
  kept.push_back(nullptr);
  return kept;
}

}  // namespace

Result<pid_t> Spawn(const OwnProgram& program) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(error.value(), "cannot find " + program.name + ": " + error.message());
  std::vector<std::string> words = {(self.parent_path().parent_path() / "lib/tessera" / program.name).string()};
  words.insert(words.end(), program.arguments.begin(), program.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const auto& [own, its] : program.files) posix_spawn_file_actions_adddup2(&files, own, its);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int failed =
      posix_spawn(&pid, arguments[0], &files, &attributes, arguments.data(), EnvironmentOf(program).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return Fail(failed, "cannot run " + words[0] + ": " + std::strerror(failed));
  return pid;
}

}  // namespace tessera
