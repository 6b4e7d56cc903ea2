// The daemon's log, which tesserad.cc sends where it belongs. Other files leave spdlog's own headers alone: they
// compile the formatting of everything again in each of them. From any thread.
#pragma once

#include <fmt/core.h>
#include <sys/types.h>

#include <string>

namespace tessera::server::log {

// Where it goes: with priorities to the journal (JOURNAL_STREAM, systemd.exec(5)), else with times and colours to a
// terminal, or plainly to whatever else stderr is. `level` is one of spdlog's names. Once, before there are threads.
void SetUp(const std::string& level);

enum class Level { kDebug, kInfo, kWarning, kError };

void Write(Level level, fmt::string_view format, fmt::format_args arguments);

template <typename... Arguments>
void Debug(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kDebug, format, fmt::make_format_args(arguments...));
}

template <typename... Arguments>
void Info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kInfo, format, fmt::make_format_args(arguments...));
}

template <typename... Arguments>
void Warn(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kWarning, format, fmt::make_format_args(arguments...));
}

template <typename... Arguments>
void Error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  Write(Level::kError, format, fmt::make_format_args(arguments...));
}

// A warning of which the programs of a user are the cause: the log has it as information, and the events as a warning,
// both as far as the user's budget goes (event_budget.h): no user fills the node's log.
void WriteOf(uid_t uid, fmt::string_view format, fmt::format_args arguments);

template <typename... Arguments>
void WarnOf(uid_t uid, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  WriteOf(uid, format, fmt::make_format_args(arguments...));
}

// Writes nothing from now on; for tests that provoke what would be logged.
void Silence(bool silent);

}  // namespace tessera::server::log
