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

// "max" as for the other sizes: no promise.
Result<void> ApplyPromise(const std::optional<std::string>& text, std::uint64_t capacity, std::uint64_t& bytes) {
  std::optional<std::uint64_t> parsed = bytes;
  if (auto r = ApplySize("memory_request", text, capacity, parsed, /*may_be_none=*/true); !r) return r;
  bytes = parsed.value_or(0);
  return {};
}

// A program sees memory.max as its GPU's size. A limit alone says what that is when the vGPU is made, and when it
// allows more than before; a program that runs keeps what it saw when the limit falls.
void FollowLimit(const MemoryTerms& before, MemoryTerms& terms) {
  constexpr std::uint64_t kAll = UINT64_MAX;
  const std::uint64_t limit = terms.limit.value_or(kAll);
  if (limit > before.limit.value_or(kAll) && limit > terms.max.value_or(kAll)) terms.max = terms.limit;
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

// "none" takes the goal away.
Result<void> ApplyGoal(const std::optional<std::string>& text, std::optional<sched::Goal>& goal) {
  if (!text) return {};
  if (*text == "none") {
    goal.reset();
    return {};
  }
  auto parsed = sched::ParseGoal(*text);
  if (!parsed) return std::unexpected(parsed.error());
  goal = *parsed;
  return {};
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, MayNameContain) &&
         text.find_first_not_of('.') != text.npos;
}

// "none" takes it out of its gang.
Result<void> ApplyGang(const std::optional<std::string>& name, VGpuSpec& spec) {
  if (!name) return {};
  if (!IsName(*name))
    return Fail(EINVAL, fmt::format("gang: \"{}\" cannot be the name of a gang", *name),
                "use 1 to 63 letters, digits, dots, dashes and underscores; \"none\" for no gang");
  spec.gang = *name == "none" ? "" : *name;
  if (spec.gang.empty() || spec.space.empty()) return {};
  return Fail(EINVAL, fmt::format("gang: a vGPU of a space, such as {}, can be in no gang", spec.space),
              "a space is on one GPU and has its turns as one; leave out the gang, or make a vGPU in no space");
}

}  // namespace

Result<void> CheckName(std::string_view name) {
  if (IsName(name)) return {};
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
  if (auto r = ApplyPromise(request.memory_request, capacity, changed.memory.request); !r) return r;
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
  if (request.space) changed.space = *request.space;
  if (request.space && changed.space.empty()) return Fail(EINVAL, "space: a name is needed", "leave it out for none");
  if (auto r = ApplyPercent("sm_limit", request.sm_limit, changed.compute.space.sm_pct); !r) return r;
  if (request.sm_reserved) changed.compute.space.reserved = *request.sm_reserved;
  if (request.sm_burst) changed.compute.space.burst = *request.sm_burst;
  if (auto r = ApplyGoal(request.goal, changed.goal); !r) return r;
  if (auto r = ApplyGang(request.gang, changed); !r) return r;
  if (request.labels) {
    if (auto r = CheckLabels(*request.labels); !r) return r;
    changed.labels = *request.labels;
  }
  if (request.memory_limit && changed.memory.limit && *changed.memory.limit > capacity)
    return Fail(ENOSPC,
                fmt::format("memory_limit of {} is more than the GPU's {}", FormatSize(*changed.memory.limit),
                            FormatSize(capacity)),
                "memory_max may be more than the GPU has: the rest lies in host memory");
  if (!request.memory_max) FollowLimit(spec.memory, changed.memory);
  if (changed.memory.limit && changed.memory.request > *changed.memory.limit)
    return Fail(ERANGE,
                fmt::format("memory_request of {} is above memory_limit of {}", FormatSize(changed.memory.request),
                            FormatSize(*changed.memory.limit)),
                "a promise beyond the limit could never be used: raise memory_limit, or lower memory_request");
  // Without swap nothing can be allocated beyond what may be resident.
  if (!swaps && request.memory_max && changed.memory.limit && changed.memory.max &&
      *changed.memory.max > *changed.memory.limit) {
    return Fail(EINVAL,
                fmt::format("memory_max of {} is above memory_limit of {}, and this GPU's memory is not swapped",
                            FormatSize(*changed.memory.max), FormatSize(*changed.memory.limit)),
                "leave memory_max out, raise memory_limit, or set swap.size in the daemon's configuration");
  }
  spec = std::move(changed);
  return {};
}

}  // namespace tessera::server
