// Output of commands, for people and for programs.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/terminal/table.h"
#include "client/json.h"

namespace tessera::cli {

// Whether `fd` is a terminal and NO_COLOR is not set: then colours and redrawing make sense.
bool IsTerminal(int fd);

void Print(const std::string& text);       // to stdout
void Print(const Table& table);            // on a terminal: bold titles, and no wider than it
void PrintJson(const client::Json& json);  // indented, with a newline

// One line on stderr: "tessera: what: why; what to do".
void PrintError(const Error& error);

// "50", "12.5": a percentage without trailing zeros.
std::string FormatPercent(double percent);
// "1.5 s", "350 ms", "2 h 5 min": a duration for people.
std::string FormatMicroseconds(std::uint64_t microseconds);
// A wall clock time in the local time zone; `format` as in strftime(3).
std::string FormatLocalTime(std::int64_t time_us, const char* format);

}  // namespace tessera::cli
