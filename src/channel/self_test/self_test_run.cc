#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/install/own_program.h"
#include "base/unique_fd.h"
#include "channel/self_test/self_test.h"

namespace tessera::channel {
namespace {

constexpr Nanos kPatience = 60 * kSecond;

// All that the child writes until it ends. ETIMEDOUT if it does not end.
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
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return FailErrno("test channel control: make a pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);

  OwnProgram program = {
      .name = "tessera-channel-test", .arguments = {}, .files = {{writing.Get(), STDOUT_FILENO}}, .without = {}};
  if (!uuid.empty()) program.arguments = {"--gpu", uuid};
  const auto pid = Spawn(program);
  if (!pid) return std::unexpected(pid.error());
  writing.Reset();

  const auto text = ReadAll(reading.Get());
  if (!text) kill(*pid, SIGKILL);
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) return std::unexpected(text.error());
  if (text->empty())
    return Fail(EPROTO, program.name + " printed nothing and ended with status " + std::to_string(status));
  return ParseSelfTest(std::string_view(*text).substr(0, text->find('\n')));
}

}  // namespace tessera::channel
