#include "server/record/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/systemd_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "server/record/events.h"

namespace tessera::server::log {
namespace {

spdlog::level::level_enum LevelOf(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void SetUp(const std::string& level) {
  std::shared_ptr<spdlog::logger> log;
  if (std::getenv("JOURNAL_STREAM")) {
    log = spdlog::create<spdlog::sinks::systemd_sink_mt>("tesserad", "tesserad");
  } else {
    log = spdlog::stderr_color_mt("tesserad");
    log->set_pattern(isatty(STDERR_FILENO) ? "%H:%M:%S.%e %^%l%$ %v" : "tesserad: %l: %v");
  }
  log->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(log);
}

void Write(Level level, fmt::string_view format, fmt::format_args arguments) {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  const bool tells = level == Level::kWarning || level == Level::kError;
  if (!tells && !logger.should_log(LevelOf(level))) return;
  std::string text = fmt::vformat(format, arguments);
  logger.log(LevelOf(level), text);
  if (tells) events::Note({.type = level == Level::kError ? EventType::kError : EventType::kWarning, .text = text});
}

void WriteOf(uid_t uid, fmt::string_view format, fmt::format_args arguments) {
  const std::string text = fmt::vformat(format, arguments);
  if (events::Note({.type = EventType::kWarning, .user = uid, .text = text}))
    spdlog::default_logger_raw()->log(spdlog::level::info, text);
}

void Silence(bool silent) { spdlog::set_level(silent ? spdlog::level::off : spdlog::level::info); }

}  // namespace tessera::server::log
