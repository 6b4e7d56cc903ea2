#include "soft/checkpoint/checkpoint_settings.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <vector>

#include "base/duration.h"
#include "base/size.h"

namespace tessera::soft {
namespace {

struct NamedStep {
  std::string_view name;
  CheckpointStep step;
};

constexpr NamedStep kSteps[] = {{"lock", CheckpointStep::kLock},
                                {"checkpoint", CheckpointStep::kCheckpoint},
                                {"restore", CheckpointStep::kRestore},
                                {"unlock", CheckpointStep::kUnlock}};

struct NamedError {
  std::string_view name;
  cuda::CUresult error;
};

constexpr NamedError kErrors[] = {
#define RESULT(name, value, text) {#name, cuda::name},
#include "cuda/results.def"
#undef RESULT
};

std::unexpected<Error> BadItem(std::string_view item) {
  return Fail(EINVAL, "soft GPU: '" + std::string(item) + "' in TESSERA_SOFT_CHECKPOINT is not valid",
              "use items such as checkpoint=300ms+2GB/s or restore=CUDA_ERROR_OUT_OF_MEMORY:always");
}

std::vector<std::string_view> SplitAt(char separator, std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "300ms" or "300ms+2GB/s".
Result<void> ParseTimes(std::string_view item, std::string_view value, StepSettings& settings) {
  const std::vector<std::string_view> parts = SplitAt('+', value);
  const auto time = ParseDuration(parts[0]);
  if (!time || parts.size() > 2) return BadItem(item);
  settings.time = *time;
  if (parts.size() == 1) return {};
  if (!parts[1].ends_with("/s")) return BadItem(item);
  const auto bytes = ParseSize(parts[1].substr(0, parts[1].size() - 2));
  if (!bytes || *bytes == 0) return BadItem(item);
  settings.bytes_per_second = *bytes;
  return {};
}

// "CUDA_ERROR_UNKNOWN:lost"
Result<void> ParseFailure(std::string_view item, std::string_view value, StepSettings& settings) {
  const std::vector<std::string_view> parts = SplitAt(':', value);
  const auto named = std::ranges::find(kErrors, parts[0], &NamedError::name);
  if (named == std::end(kErrors) || named->error == cuda::CUDA_SUCCESS) return BadItem(item);
  settings.error = named->error;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] != "always" && parts[i] != "lost") return BadItem(item);
    (parts[i] == "always" ? settings.always : settings.lost) = true;
  }
  return {};
}

}  // namespace

Result<CheckpointSettings> ParseCheckpointSettings(std::string_view text) {
  CheckpointSettings settings;
  if (text.empty()) return settings;
  for (const std::string_view item : SplitAt(',', text)) {
    const std::size_t equals = item.find('=');
    if (equals == item.npos) return BadItem(item);
    const auto named = std::ranges::find(kSteps, item.substr(0, equals), &NamedStep::name);
    if (named == std::end(kSteps)) return BadItem(item);
    const std::string_view value = item.substr(equals + 1);
    StepSettings& step = settings[named->step];
    const auto parsed =
        value.starts_with("CUDA_ERROR_") ? ParseFailure(item, value, step) : ParseTimes(item, value, step);
    if (!parsed) return std::unexpected(parsed.error());
  }
  return settings;
}

}  // namespace tessera::soft
