// What this process uses that the driver's checkpoint cannot save (wire::Tie).
#pragma once

#include "wire/page.h"

namespace tessera::shim {

// The process uses this from now on; the pages of all its GPUs say so until it ends. Any thread.
void NoteTie(wire::Tie tie);

// Another page is followed: it says what was noted.
void ReportTies(wire::Page& page);

}  // namespace tessera::shim
