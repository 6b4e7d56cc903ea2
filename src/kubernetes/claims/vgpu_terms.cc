#include "kubernetes/claims/vgpu_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/objects/quantity.h"

namespace tessera::kubernetes {

using client::TextField;

namespace {

enum class Kind { kBytes, kNumber, kText };

// A parameter, by its path in VGpuConfig, and the API's field for it.
struct Parameter {
  std::string_view path, field;
  Kind kind;
};
constexpr auto kParameters = std::to_array<Parameter>({
    {"memory.request", "memory_request", Kind::kBytes},
    {"memory.max", "memory_max", Kind::kBytes},
    {"compute.limit", "compute_limit", Kind::kNumber},
    {"compute.weight", "compute_weight", Kind::kNumber},
    {"compute.priority", "compute_priority", Kind::kNumber},
    {"goal", "goal", Kind::kText},
});

std::string AllPaths() {
  std::string all;
  for (const Parameter& parameter : kParameters) all += (all.empty() ? "" : ", ") + std::string(parameter.path);
  return all;
}

std::unexpected<Error> Wrong(const std::string& path, const char* what) {
  return Fail(EINVAL, fmt::format("{}.{} {}", kParametersKind, path, what));
}

// The API's value.
Result<Json> ValueOf(const Parameter& parameter, const Json& value) {
  const std::string path(parameter.path);
  switch (parameter.kind) {
    case Kind::kBytes: {
      if (!value.is_string() && !value.is_number_unsigned()) return Wrong(path, "is not a quantity");
      auto bytes = ParseQuantity(value.is_string() ? value.get<std::string>() : value.dump());
      if (!bytes) return Wrong(path, ("is wrong: " + bytes.error().Text()).c_str());
      return Json(*bytes);
    }
    case Kind::kNumber:
      if (!value.is_number()) return Wrong(path, "is not a number");
      return value;
    case Kind::kText:
      break;
  }
  if (!value.is_string()) return Wrong(path, "is not a string");
  return value;
}

// `before`: the path of the object, with a dot behind it; empty for the whole.
Result<void> Apply(const Json& object, const std::string& before, Json& terms) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = before + name;
    const auto found = std::ranges::find(kParameters, path, &Parameter::path);
    if (found != kParameters.end()) {
      auto read = ValueOf(*found, value);
      if (!read) return std::unexpected(read.error());
      terms[std::string(found->field)] = std::move(*read);
      continue;
    }
    const bool holds = std::ranges::any_of(
        kParameters, [&](const Parameter& parameter) { return parameter.path.starts_with(path + "."); });
    if (!holds) return Fail(EINVAL, fmt::format("{}.{} is unknown", kParametersKind, path), "use " + AllPaths());
    if (!value.is_object()) return Wrong(path, "is not an object");
    if (auto applied = Apply(value, path + ".", terms); !applied) return applied;
  }
  return {};
}

Result<void> ApplyParameters(Json parameters, Json& terms) {
  if (!parameters.is_object()) return Fail(EINVAL, "the claim's parameters are no object");
  if (TextField(parameters, "apiVersion") != kParametersVersion || TextField(parameters, "kind") != kParametersKind)
    return Fail(EINVAL,
                fmt::format("the claim's parameters are {} {}", TextField(parameters, "apiVersion", "of no apiVersion"),
                            TextField(parameters, "kind", "and no kind")),
                fmt::format("use apiVersion {} and kind {}", kParametersVersion, kParametersKind));
  parameters.erase("apiVersion");
  parameters.erase("kind");
  return Apply(parameters, "", terms);
}

bool AreFor(const ClaimParameters& parameters, const std::string& request) {
  const std::string whole = request.substr(0, request.find('/'));
  return parameters.requests.empty() || std::ranges::find(parameters.requests, request) != parameters.requests.end() ||
         std::ranges::find(parameters.requests, whole) != parameters.requests.end();
}

}  // namespace

Result<Json> TermsOf(const Claim& claim, const AllocatedDevice& device) {
  Json terms = Json::object();
  const auto consumed = [&](const char* name) -> const std::uint64_t* {
    const auto found = device.consumed.find(name);
    return found == device.consumed.end() ? nullptr : &found->second;
  };
  const std::uint64_t* const swap = consumed("swap");
  const std::uint64_t* const memory = consumed("memory");
  if (!memory)
    return Fail(ENOSPC, fmt::format("{} has no memory left for claims", device.device),
                "ask for capacity memory in the claim: then the scheduler takes a GPU that has it");
  terms["memory_request"] = terms["memory_limit"] = *memory;
  terms["memory_max"] = *memory + (swap ? *swap : 0);
  if (swap) terms["memory_swap_max"] = *swap;
  if (const std::uint64_t* compute = consumed("compute")) terms["compute_request"] = *compute;
  for (const ClaimParameters& parameters : claim.parameters) {
    if (!AreFor(parameters, device.request)) continue;
    if (auto applied = ApplyParameters(parameters.parameters, terms); !applied) return std::unexpected(applied.error());
  }
  return terms;
}

}  // namespace tessera::kubernetes
