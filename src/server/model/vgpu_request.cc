#include "server/model/vgpu_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/size.h"

namespace tessera::server {
namespace {

constexpr std::size_t kLongestName = 63;

bool MayNameContain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

std::unexpected<Error> InField(const char* field, Error error) {
  error.message = std::string(field) + ": " + error.message;
  return std::unexpected(std::move(error));
}

Result<void> ApplySize(const char* field, const std::optional<std::string>& text, std::uint64_t capacity,
                       std::optional<std::uint64_t>& bytes, bool may_be_none = false) {
  if (!text) return {};
  if (*text == "max") {
    bytes.reset();
    return {};
  }
  auto parsed = ParseSize(*text, capacity);
  if (!parsed) return InField(field, parsed.error());
  if (*parsed == 0 && !may_be_none) return Fail(ERANGE, std::string(field) + ": 0 bytes would let no program start");
  bytes = *parsed;
  return {};
}

Result<void> ApplyPercent(const char* field, const std::optional<std::string>& text, double& percent) {
  if (!text) return {};
  auto parsed = ParsePercent(*text);
  if (!parsed) return InField(field, parsed.error());
  percent = *parsed;
  return {};
}

// Its range is the scheduler's to check.
Result<void> ApplyWhole(const char* field, const char* range, const std::optional<std::string>& text,
                        std::uint32_t& number) {
  if (!text) return {};
  std::uint32_t parsed = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), parsed);
  if (error != std::errc() || end != text->data() + text->size()) {
    return Fail(EINVAL, fmt::format("{}: \"{}\" is not a whole number", field, *text), range);
  }
  number = parsed;
  return {};
}

}  // namespace

Result<void> CheckName(std::string_view name) {
  const bool fits =
      !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), MayNameContain);
  if (fits && name.find_first_not_of('.') != name.npos) return {};
  return Fail(EINVAL, fmt::format("\"{}\" cannot be the name of a vGPU", name),
              "use 1 to 63 letters, digits, dots, dashes and underscores");
}

std::string NameFor(std::string_view program, unsigned n) {
  std::string name(program.substr(program.rfind('/') + 1).substr(0, kLongestName - 10));
  for (char& c : name) c = MayNameContain(c) ? c : '-';
  if (name.empty()) name = "vgpu";
  return fmt::format("{}-{}", name, n);
}

Result<void> ApplyFigures(const VGpuRequest& request, std::uint64_t capacity, bool swaps, VGpuSpec& spec) {
  VGpuSpec changed = spec;
  if (auto r = ApplySize("memory_limit", request.memory_limit, capacity, changed.memory.limit); !r) return r;
  if (auto r = ApplySize("memory_max", request.memory_max, capacity, changed.memory.max); !r) return r;
  if (auto r = ApplySize("memory_swap_max", request.memory_swap_max, capacity, changed.memory.swap, true); !r) return r;
  if (auto r = ApplyPercent("compute_request", request.compute_request, changed.compute.request_pct); !r) return r;
  if (auto r = ApplyPercent("compute_limit", request.compute_limit, changed.compute.limit_pct); !r) return r;
  if (auto r = ApplyWhole("compute_weight", "use 1 to 10000", request.compute_weight, changed.compute.weight); !r)
    return r;
  if (auto r =
          ApplyWhole("compute_priority", "use 0 (first) to 15", request.compute_priority, changed.compute.priority);
      !r)
    return r;
  // Without swap nothing can be allocated beyond what may be resident.
  if (!swaps && changed.memory.limit && changed.memory.max && *changed.memory.max > *changed.memory.limit) {
    return Fail(EINVAL,
                fmt::format("memory_max of {} is above memory_limit of {}, and this GPU's memory is not swapped",
                            FormatSize(*changed.memory.max), FormatSize(*changed.memory.limit)),
                "leave memory_max out, raise memory_limit, or set swap.size in the daemon's configuration");
  }
  spec = std::move(changed);
  return {};
}

}  // namespace tessera::server
