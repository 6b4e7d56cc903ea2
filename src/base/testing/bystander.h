#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera {

// A process that does nothing until it is killed.
class Bystander {
 public:
  Bystander() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;
  ~Bystander() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t Pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace tessera
