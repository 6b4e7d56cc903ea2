#include "shim/process/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace tessera::shim {

void Say(const char* format, ...) {
  const int before = errno;
  char line[1024] = "tessera: ";
  const size_t prefix = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
  va_end(arguments);
  size_t total = prefix + (length < 0 ? 0 : length);
  if (total > sizeof line - 2) total = sizeof line - 2;
  line[total++] = '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, total);
  errno = before;
}

}  // namespace tessera::shim
