#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "cli/top/top_screen.h"
#include "cli/top/top_session.h"
#include "cli/top/top_view.h"

namespace tessera::cli::top {

// Whether the locale's encoding is UTF-8. Sets the character locale from the environment.
bool LocaleIsUtf8();

// The terminal on stdin and stdout while it shows the picture; the only user of ncurses. There can be one at a time.
// The destructor restores the terminal. One thread.
class Terminal {
 public:
  // ENOTTY if there is no terminal; ENODEV if it cannot move the cursor.
  static Result<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // An empty picture as large as the terminal is now.
  Screen Blank();
  void Show(const Screen& screen, const std::optional<Cursor>& cursor);
  // The next key, if one was pressed.
  std::optional<Key> Read();
  // Restores the terminal and stops this process, for Ctrl-Z; returns when it is continued.
  void Stop();

 private:
  explicit Terminal(void* screen) : screen_(screen) {}

  void* const screen_;
  bool colours_ = false;
  bool unicode_ = false;
};

}  // namespace tessera::cli::top
