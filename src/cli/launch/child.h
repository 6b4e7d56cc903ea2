#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/launch/environment.h"

namespace tessera::cli {

// Words as exec(3) takes them; good as long as `words` are.
std::vector<char*> ForExec(const std::vector<std::string>& words);

// The last line of what a program wrote, without its end.
std::string LastLine(std::string text);

// A program that we started and that does not outlive us, whatever ends us. One thread.
class Child {
 public:
  // `arguments` begin with the program's path; `variables` come on top of our environment. What it writes to stdout and
  // stderr can be read from output(). EACCES, ENOENT … if it cannot be executed.
  static Result<Child> Start(const std::vector<std::string>& arguments, const Variables& variables);
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), output_(std::move(other.output_)) {}
  Child& operator=(Child&& other) = delete;
  ~Child();  // kills it if it still runs

  int output() const { return output_.Get(); }
  // A piece of what it writes; waits for one. Empty at its end.
  std::string Read();
  std::string ReadToEnd();

  void Signal(int number) const;
  // Waits for its end. Its exit status, 128 + N after signal N.
  int Wait();

 private:
  Child(pid_t pid, UniqueFd output) : pid_(pid), output_(std::move(output)) {}

  pid_t pid_;  // -1 once waited for
  UniqueFd output_;
};

}  // namespace tessera::cli
