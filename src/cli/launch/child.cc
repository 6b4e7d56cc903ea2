#include "cli/launch/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/install/environment.h"

namespace tessera::cli {
namespace {

[[noreturn]] void Become(const std::vector<std::string>& arguments, const Variables& variables, bool forget_others,
                         int output, int failure) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (forget_others) ForgetOtherPrograms();
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  const std::vector<char*> argv = ForExec(arguments);
  execv(argv[0], argv.data());
  const int error = errno;
  (void)!write(failure, &error, sizeof error);
  _exit(127);
}

}  // namespace

std::vector<char*> ForExec(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::string LastLine(std::string text) {
  while (text.ends_with("\n")) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Result<Child> Child::Start(const std::vector<std::string>& arguments, const Variables& variables, bool forget_others) {
  int output[2], failure[2];
  if (pipe2(output, O_CLOEXEC) != 0) return FailErrno("cannot make a pipe");
  UniqueFd read_end(output[0]);
  UniqueFd write_end(output[1]);
  if (pipe2(failure, O_CLOEXEC) != 0) return FailErrno("cannot make a pipe");
  const UniqueFd failure_read(failure[0]);
  UniqueFd failure_write(failure[1]);
  const pid_t pid = fork();
  if (pid < 0) return FailErrno("cannot start a process");
  if (pid == 0) Become(arguments, variables, forget_others, write_end.Get(), failure_write.Get());
  Child child(pid, std::move(read_end));
  write_end.Reset();
  failure_write.Reset();
  // A successful exec closes the pipe: then there is nothing to read.
  int error = 0;
  if (read(failure_read.Get(), &error, sizeof error) == sizeof error) {
    errno = error;
    return FailErrno("cannot execute " + arguments[0]);
  }
  return child;
}

Child::~Child() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

std::string Child::Read() {
  char piece[4096];
  ssize_t got;
  do {
    got = read(output_.Get(), piece, sizeof piece);
  } while (got < 0 && errno == EINTR);
  return std::string(piece, got > 0 ? got : 0);
}

std::string Child::ReadToEnd() {
  std::string all;
  for (std::string piece; !(piece = Read()).empty();) all += piece;
  return all;
}

void Child::Signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

int Child::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) break;
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace tessera::cli
