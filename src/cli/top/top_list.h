#pragma once

#include "cli/top/top_model.h"
#include "cli/top/top_screen.h"

namespace tessera::cli::top {

// The list of vGPUs and processes with its titles, from line `y` on, so that the selected row is among them. Without
// `live`, as for --once: no row is marked, and there is no minute.
void DrawList(const Model& model, Screen& screen, int y, int height, bool live);

}  // namespace tessera::cli::top
