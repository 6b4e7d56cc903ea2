#include "base/install/own_program.h"

#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/install/environment.h"
#include "base/install/lasting_groups.h"

namespace tessera {
namespace {

std::string_view NameOf(std::string_view variable) { return variable.substr(0, variable.find('=')); }

std::vector<std::string> EnvironmentOf(const OwnProgram& program) {
  std::vector<std::string> environment = program.with;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view name = NameOf(*at);
    const auto is_it = [&](const std::string& other) { return NameOf(other) == name; };
    const bool out = IsOfOtherPrograms(name) || std::ranges::any_of(program.without, is_it) ||
                     std::ranges::any_of(program.with, is_it);
    if (!out) environment.emplace_back(*at);
  }
  return environment;
}

// As execve(2) takes them; valid as long as the words.
std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<std::string> PathOf(const std::string& name) {
  if (name.starts_with('/')) return name;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(error.value(), "cannot find " + name + ": " + error.message());
  return (self.parent_path().parent_path() / "lib/tessera" / name).string();
}

// posix_spawn(3) cannot change the user, and a program with threads cannot do much between fork(2) and exec(3). A user
// without an entry, as in most containers, gets Debian's nogroup: the group with the user's number may be anybody's.
std::vector<std::string> AsUser(uid_t user) {
  constexpr const char* kNoGroup = "--regid=65534";
  const std::string number = std::to_string(user);
  passwd entry{};
  passwd* found = nullptr;
  char text[16384];
  if (getpwuid_r(user, &entry, text, sizeof text, &found) == 0 && found)
    return {"/usr/bin/setpriv", "--reuid=" + number, "--regid=" + std::to_string(entry.pw_gid), "--init-groups", "--"};
  return {"/usr/bin/setpriv", "--reuid=" + number, kNoGroup, "--clear-groups", "--"};
}

}  // namespace

Result<pid_t> Spawn(const OwnProgram& program) {
  auto path = PathOf(program.name);
  if (!path) return std::unexpected(path.error());
  std::vector<std::string> words;
  if (program.user && *program.user != geteuid()) words = AsUser(*program.user);
  words.push_back(*path);
  words.insert(words.end(), program.arguments.begin(), program.arguments.end());
  std::vector<std::string> environment = EnvironmentOf(program);

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
  const int failed = posix_spawn(&pid, words.front().c_str(), &files, &attributes, Pointers(words).data(),
                                 Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return Fail(failed, "cannot run " + words.front() + ": " + std::strerror(failed));
  if (program.lasts) PutIntoLastingGroups(pid);
  return pid;
}

}  // namespace tessera
