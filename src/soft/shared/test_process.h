// Other processes for tests: a child that does something with the shared state and reports through pipes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

// A path in /dev/shm of this test's own, removed at its end.
class ScratchState {
 public:
  ScratchState() {
    static int number = 0;
    path_ = "/dev/shm/tessera-soft-test-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  }
  ~ScratchState() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::unique_ptr<SharedState> MustAttach(const std::string& path, const std::string& spec) {
  auto state = SharedState::Attach(path, spec);
  EXPECT_TRUE(state) << state.error().Text();
  return state ? std::move(*state) : nullptr;
}

// A forked process that runs `body`. The two talk in single bytes. Killed, if it still runs, and collected at the end.
class TestProcess {
 public:
  class Peer {
   public:
    void Say() const { EXPECT_EQ(write(out.Get(), "x", 1), 1); }
    // Waits for the other's Say. False if it ended instead.
    bool Hear() const {
      char byte = 0;
      return read(in.Get(), &byte, 1) == 1;
    }
    UniqueFd in, out;
  };

  explicit TestProcess(const std::function<void(Peer&)>& body) {
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) abort();
    Peer child = {UniqueFd(down[0]), UniqueFd(up[1])};
    peer_ = {UniqueFd(up[0]), UniqueFd(down[1])};
    pid_ = fork();
    if (pid_ == 0) {
      peer_ = {};
      body(child);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
  }
  ~TestProcess() {
    if (pid_ > 0) Kill();
  }

  pid_t pid() const { return pid_; }
  void Say() const { peer_.Say(); }
  bool Hear() const { return peer_.Hear(); }
  void Signal(int signal) const { kill(pid_, signal); }
  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }
  // Its exit status, -1 if it was killed.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  Peer peer_;
  pid_t pid_ = 0;
};

}  // namespace tessera::soft
