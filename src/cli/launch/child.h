#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/launch/environment.h"

namespace tessera::cli {

// Arguments for exec(3); valid as long as `words`.
std::vector<char*> ForExec(const std::vector<std::string>& words);

// The last line of a program's output, without its newline.
std::string LastLine(std::string text);

// A child process that dies with this process, whatever ends it. One thread.
class Child {
 public:
  // `arguments` begin with the program's path; `variables` are added to this process's environment. Its stdout and
  // stderr can be read from output(). EACCES, ENOENT … if it cannot be executed.
  // `forget_others`: it inherits nothing that the environment says to other programs (base/install/environment.h).
  static Result<Child> Start(const std::vector<std::string>& arguments, const Variables& variables,
                             bool forget_others = false);
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)) {}
  Child& operator=(Child&& other) = delete;
  ~Child();  // kills it if it still runs

  int output() const { return output_.Get(); }
  // The next piece of its output. Blocks until there is one; empty at the end.
  std::string Read();
  std::string ReadToEnd();

  void Signal(int number) const;
  // Waits for its end. Returns its exit status, or 128 + N after signal N.
  int Wait();

 private:
  Child(pid_t pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}

  pid_t pid_;  // -1 once waited for
  UniqueFd output_;
};

}  // namespace tessera::cli
