// Errors are values: a function that can fail returns Result<T>.
#pragma once

#include <cerrno>
#include <cstring>
#include <expected>
#include <string>
#include <utility>

namespace tessera {

// An error, in words for the person who has to mend it.
struct Error {
  int code = EINVAL;    // errno value that describes it best; files return it, HTTP status codes follow from it
  std::string message;  // what and why, one line, no full stop
  std::string hint;     // what to do about it, one line; may be empty

  // "message; hint" as the command line prints it.
  std::string Text() const { return hint.empty() ? message : message + "; " + hint; }
};

template <typename T>
using Result = std::expected<T, Error>;

[[nodiscard]] inline std::unexpected<Error> Fail(int code, std::string message, std::string hint = {}) {
  return std::unexpected(Error{code, std::move(message), std::move(hint)});
}

// Fail with what errno says: "open /x: No such file or directory".
[[nodiscard]] inline std::unexpected<Error> FailErrno(std::string what, std::string hint = {}) {
  const int code = errno;
  return Fail(code, std::move(what) + ": " + std::strerror(code), std::move(hint));
}

}  // namespace tessera
