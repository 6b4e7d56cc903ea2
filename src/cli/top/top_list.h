#pragma once

#include "cli/top/model/top_model.h"
#include "cli/top/top_screen.h"

namespace tessera::cli::top {

// Draws the list of vGPUs and processes with its titles from line `y` on, scrolled so that the selected row is visible.
// Without `live` (--once) no row is marked, and there is no history.
void DrawList(const Model& model, Screen& screen, int y, int height, bool live);

}  // namespace tessera::cli::top
