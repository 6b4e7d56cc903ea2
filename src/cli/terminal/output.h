// What commands write to people and programs.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/terminal/table.h"
#include "client/json.h"

namespace tessera::cli {

// Whether people read what goes to `fd`, so that colour and redrawing make sense. Never with NO_COLOR set.
bool IsTerminal(int fd);

// The text with "?" in place of what a terminal would obey: names of programs may be any bytes.
std::string Printable(std::string text);

void Print(const std::string& text);       // to stdout
void Print(const Table& table);            // on a terminal with bold titles, and as wide as that
void PrintJson(const client::Json& json);  // indented, with a newline

// One line on stderr: "tessera: what: why; what to do".
void PrintError(const Error& error);

// "50", "12.5": a percentage without needless digits.
std::string FormatPercent(double percent);
// "1.5 s", "350 ms", "2 h 5 min": a span of time for people.
std::string FormatMicroseconds(std::uint64_t microseconds);

}  // namespace tessera::cli
