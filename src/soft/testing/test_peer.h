#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "soft/testing/test_api.h"

namespace tessera::soft {

// Another program of the driver API; see test_peer.cc. Ends when the object does.
class Peer {
 public:
  Peer(const std::string& command, const std::string& argument, const std::vector<int>& files = {}) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    for (std::size_t i = 0; i < files.size(); ++i) {
      posix_spawn_file_actions_adddup2(&actions, files[i], kPeerFile + static_cast<int>(i));
    }
    std::string words[] = {TESSERA_SOFT_PEER, command, argument};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, TESSERA_SOFT_PEER, &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_.Reset(in[1]);
    output_.Reset(out[0]);
  }
  ~Peer() {
    input_.Reset();
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  std::string Line() {
    std::string line;
    for (char c; read(output_.Get(), &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  // A byte on its standard input.
  void Say() { EXPECT_EQ(write(input_.Get(), "x", 1), 1); }
  // It has said something that was not read.
  bool HasLine() {
    pollfd news = {.fd = output_.Get(), .events = POLLIN, .revents = 0};
    return poll(&news, 1, 0) == 1;
  }
  // Returns once it has ended.
  void Kill() {
    kill(pid_, SIGKILL);
    (void)AwaitEnd();
  }
  // The signal that ended it, or its exit status.
  int AwaitEnd() {
    siginfo_t ended = {};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT), 0);
    return ended.si_status;
  }

 private:
  pid_t pid_ = 0;
  UniqueFd input_, output_;
};

}  // namespace tessera::soft
