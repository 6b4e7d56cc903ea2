#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "base/unique_fd.h"
#include "channel/self_test.h"

namespace tessera::channel {
namespace {

constexpr Nanos kPatience = 60 * kSecond;

// The environment without what would be preloaded: the test is to see the driver itself.
std::vector<char*> PlainEnvironment() {
  std::vector<char*> plain;
  for (char** at = environ; *at != nullptr; ++at) {
    if (std::strncmp(*at, "LD_PRELOAD=", 11) != 0) plain.push_back(*at);
  }
  plain.push_back(nullptr);
  return plain;
}

// What the child writes until it ends. ETIMEDOUT if it does not.
Result<std::string> ReadAll(int fd) {
  std::string text;
  for (const Nanos deadline = MonotonicNow() + kPatience;;) {
    const Nanos left = deadline - MonotonicNow();
    if (left <= 0) return Fail(ETIMEDOUT, "the test of channel control did not end");
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(left / kMillisecond) + 1) <= 0) continue;
    char buffer[512];
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    if (text.size() < 4096) text.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

Result<SelfTest> RunSelfTest(const std::string& uuid) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(error.value(), "find tessera-channel-test: " + error.message());
  std::string program = (self.parent_path().parent_path() / "lib/tessera/tessera-channel-test").string();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FailErrno("test channel control: make a pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);

  std::string option = "--gpu", value = uuid;
  std::vector<char*> arguments = {program.data()};
  if (!uuid.empty()) arguments.insert(arguments.end(), {option.data(), value.data()});
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, writing.Get(), STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A daemon blocks signals that it reads from descriptors.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int failed =
      posix_spawn(&pid, program.c_str(), &files, &attributes, arguments.data(), PlainEnvironment().data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return Fail(failed, "run " + program + ": " + std::strerror(failed));
  writing.Reset();

  const auto text = ReadAll(reading.Get());
  if (!text) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) return std::unexpected(text.error());
  if (text->empty()) return Fail(EPROTO, program + " ended without a word, status " + std::to_string(status));
  return ParseSelfTest(std::string_view(*text).substr(0, text->find('\n')));
}

}  // namespace tessera::channel
