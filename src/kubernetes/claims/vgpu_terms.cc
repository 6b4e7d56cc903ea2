#include "kubernetes/claims/vgpu_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/objects/quantity.h"

namespace tessera::kubernetes {

using client::TextField;

namespace {

enum class Kind { kBytes, kNumber, kText, kFlag };

// A parameter, by its path in VGpuConfig, and the API's field for it. `enforce` is none of the API's.
struct Parameter {
  std::string_view path, field;
  Kind kind;
};
constexpr const char* kEnforce = "enforce";
constexpr auto kParameters = std::to_array<Parameter>({
    {"memory.request", "memory_request", Kind::kBytes},
    {"memory.limit", "memory_limit", Kind::kBytes},
    {"memory.max", "memory_max", Kind::kBytes},
    {"compute.limit", "compute_limit", Kind::kNumber},
    {"compute.weight", "compute_weight", Kind::kNumber},
    {"compute.priority", "compute_priority", Kind::kNumber},
    {"goal", "goal", Kind::kText},
    {"space", "space", Kind::kText},
    {"sm.limit", "sm_limit", Kind::kNumber},
    {"sm.reserved", "sm_reserved", Kind::kFlag},
    {"sm.burst", "sm_burst", Kind::kFlag},
    {"enforce", kEnforce, Kind::kText},
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
    case Kind::kFlag:
      if (!value.is_boolean()) return Wrong(path, "is neither true nor false");
      return value;
    case Kind::kText:
      break;
  }
  if (!value.is_string()) return Wrong(path, "is not a string");
  return value;
}

// `before`: the path of the object, with a dot behind it; empty for the whole.
Result<void> Apply(const Json& object, const std::string& before, bool later, Json& terms) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = before + name;
    const auto found = std::ranges::find(kParameters, path, &Parameter::path);
    if (found != kParameters.end()) {
      auto read = ValueOf(*found, value);
      if (!read) return std::unexpected(read.error());
      if (later && (found->path == "space" || found->path == kEnforce))
        return Wrong(path, "cannot change while the claim is in use");
      // The stricter one holds: an administrator's class may ask for the gate.
      if (found->path == kEnforce && TextField(terms, kEnforce) == "kernel" && *read == "shim") continue;
      terms[std::string(found->field)] = std::move(*read);
      continue;
    }
    const bool holds = std::ranges::any_of(
        kParameters, [&](const Parameter& parameter) { return parameter.path.starts_with(path + "."); });
    if (!holds) return Fail(EINVAL, fmt::format("{}.{} is unknown", kParametersKind, path), "use " + AllPaths());
    if (!value.is_object()) return Wrong(path, "is not an object");
    if (auto applied = Apply(value, path + ".", later, terms); !applied) return applied;
  }
  return {};
}

Result<void> ApplyParameters(Json parameters, bool later, Json& terms) {
  if (!parameters.is_object()) return Fail(EINVAL, "the claim's parameters are no object");
  if (TextField(parameters, "apiVersion") != kParametersVersion || TextField(parameters, "kind") != kParametersKind)
    return Fail(EINVAL,
                fmt::format("the claim's parameters are {} {}", TextField(parameters, "apiVersion", "of no apiVersion"),
                            TextField(parameters, "kind", "and no kind")),
                fmt::format("use apiVersion {} and kind {}", kParametersVersion, kParametersKind));
  parameters.erase("apiVersion");
  parameters.erase("kind");
  return Apply(parameters, "", later, terms);
}

bool AreFor(const ClaimParameters& parameters, const std::string& request) {
  const std::string whole = request.substr(0, request.find('/'));
  return parameters.requests.empty() || std::ranges::find(parameters.requests, request) != parameters.requests.end() ||
         std::ranges::find(parameters.requests, whole) != parameters.requests.end();
}

// What a vGPU has of which nothing is said.
Json Standard() { return {{"compute_limit", 100}, {"compute_weight", 100}, {"compute_priority", 8}, {"goal", "none"}}; }

// The daemon's name of a space of this namespace on this GPU.
Result<std::string> SpaceOn(const std::string& device, const std::string& namespace_name, const std::string& name) {
  constexpr std::size_t kLongest = 63, kGpu = 12;  // "gpu-911ede30"
  if (name.empty()) return Wrong("space", "is empty");
  std::string space = fmt::format("{}.{}.{}", namespace_name, name, device.substr(0, kGpu));
  if (space.size() > kLongest)
    return Wrong("space", "is too long: with its namespace it may have at most 49 characters");
  return space;
}

Result<bool> TakeEnforce(Json& terms) {
  const std::string enforce = TextField(terms, kEnforce, "shim");
  terms.erase(kEnforce);
  if (enforce == "shim") return false;
  if (enforce != "kernel") return Wrong(kEnforce, "is neither \"shim\" nor \"kernel\"");
  if (terms.contains("space")) return Wrong(kEnforce, "cannot be \"kernel\" in a space");
  return true;
}

}  // namespace

Result<VGpuTerms> TermsOf(const Claim& claim, const AllocatedDevice& device) {
  Json terms = Standard();
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
  const std::uint64_t* const sm = consumed("sm");
  if (sm && *sm > 0) terms["sm_limit"] = *sm;
  for (const ClaimParameters& parameters : claim.parameters) {
    if (!AreFor(parameters, device.request)) continue;
    if (auto applied = ApplyParameters(parameters.parameters, parameters.later, terms); !applied)
      return std::unexpected(applied.error());
  }
  // What the scheduler has counted is the most.
  if (terms["memory_request"].get<std::uint64_t>() > *memory)
    return Wrong("memory.request", "is more than the claim's capacity memory; ask for that");
  if (terms.contains("sm_limit") && terms["sm_limit"].get<double>() > (sm ? static_cast<double>(*sm) : 0))
    return Wrong("sm.limit", "is more than the claim's capacity sm; ask for that");
  const auto kernel_gate = TakeEnforce(terms);
  if (!kernel_gate) return std::unexpected(kernel_gate.error());
  if (const auto space = terms.find("space"); space != terms.end()) {
    auto name = SpaceOn(device.device, claim.namespace_name, space->get<std::string>());
    if (!name) return std::unexpected(name.error());
    *space = std::move(*name);
    terms.emplace("sm_limit", 100);
    terms.emplace("sm_burst", false);
  } else if (terms.contains("sm_limit")) {
    return Wrong("space", "is missing: only in a space has a vGPU a part of the SMs");
  }
  return VGpuTerms{.fields = std::move(terms), .kernel_gate = *kernel_gate};
}

}  // namespace tessera::kubernetes
