#pragma once

#include <string>

namespace tessera::cli {

// The text with "?" in place of control characters, which a terminal would obey: names of programs may hold any bytes.
std::string Printable(std::string text);

}  // namespace tessera::cli
