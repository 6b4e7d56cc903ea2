// The whole picture of `tessera top`.
#pragma once

#include "cli/top/top_screen.h"
#include "cli/top/top_session.h"

namespace tessera::cli::top {

// Fills the screen, whatever its size. Where the cursor stands while something is typed: that column of the line
// before the last (the last one on a small screen); none else.
struct Cursor {
  int x = 0, y = 0;
};
std::optional<Cursor> Draw(Session& session, Screen& screen);

// As many lines as there is something to tell, for --once.
std::string Text(const Model& model, int width, bool unicode);

}  // namespace tessera::cli::top
