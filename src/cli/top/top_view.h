// The whole picture of `tessera top`.
#pragma once

#include "cli/top/top_screen.h"
#include "cli/top/top_session.h"

namespace tessera::cli::top {

struct Cursor {
  int x = 0, y = 0;
};
// Draws the whole picture on a screen of any size. Returns the position of the cursor while the user types.
std::optional<Cursor> Draw(Session& session, Screen& screen);

// The picture as text for --once, with as many lines as it needs.
std::string Text(const Model& model, int width, bool unicode);

}  // namespace tessera::cli::top
