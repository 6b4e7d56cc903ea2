#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "cli/top/top_screen.h"
#include "cli/top/top_session.h"
#include "cli/top/top_view.h"

namespace tessera::cli::top {

// Whether the locale writes UTF-8. Takes over the locale of the environment for characters.
bool LocaleIsUtf8();

// The terminal on stdin and stdout while it shows our picture; the only part that knows ncurses. There can be one at a
// time; it is as it was when this ends. Not from several threads.
class Terminal {
 public:
  // ENOTTY where there is none; ENODEV for one on which nothing can be redrawn.
  static Result<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // An empty picture as large as the terminal is now.
  Screen Blank();
  void Show(const Screen& screen, const std::optional<Cursor>& cursor);
  // A key that waits; none if none does.
  std::optional<Key> Read();
  // Gives the terminal back and stops this process, as Ctrl-Z asks; returns when it goes on.
  void Stop();

 private:
  explicit Terminal(void* screen) : screen_(screen) {}

  void* const screen_;
  bool colours_ = false;
  bool unicode_ = false;
};

}  // namespace tessera::cli::top
