#include "face/text/request_bodies.h"

#include <fmt/format.h>

#include <cerrno>
#include <nlohmann/json.hpp>

namespace tessera::face {
namespace {

using nlohmann::json;

std::unexpected<Error> Wrong(const std::string& key, const char* expected) {
  return Fail(EINVAL, fmt::format("{} must be {}", key, expected));
}

// A figure: a number or a text with a unit.
Result<void> Read(const std::string& key, const json& value, std::optional<std::string>& field) {
  if (value.is_string()) {
    field = value.get<std::string>();
  } else if (value.is_number() && !(value.is_number_integer() && value < 0)) {
    field = value.dump();
  } else {
    return Wrong(key, "a number of at least 0, or a string such as \"20G\" or \"25%\"");
  }
  return {};
}

// null lifts a bound. (A value is never copied here: of one that is deeply nested, that would take a deep stack.)
Result<void> ReadBound(const std::string& key, const json& value, std::optional<std::string>& field) {
  if (!value.is_null()) return Read(key, value, field);
  field = "max";
  return {};
}

Result<void> ReadText(const std::string& key, const json& value, std::optional<std::string>& field) {
  if (!value.is_string()) return Wrong(key, "a string");
  field = value.get<std::string>();
  return {};
}

Result<void> ReadBool(const std::string& key, const json& value, std::optional<bool>& field) {
  if (!value.is_boolean()) return Wrong(key, "true or false");
  field = value.get<bool>();
  return {};
}

// null takes them away.
Result<void> ReadLabels(const std::string& key, const json& value, std::optional<server::Labels>& field) {
  field.emplace();
  if (value.is_null()) return {};
  if (!value.is_object()) return Wrong(key, "an object of strings, such as {\"team\": \"a\"}");
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) return Wrong(fmt::format("{}.{}", key, name), "a string");
    (*field)[name] = text.get_ref<const std::string&>();
  }
  return {};
}

// null takes the goal, or the gang, away.
Result<void> ReadOrNone(const std::string& key, const json& value, std::optional<std::string>& field) {
  if (!value.is_null()) return ReadText(key, value, field);
  field = "none";
  return {};
}

Result<void> ReadField(const std::string& key, const json& value, server::VGpuRequest& request) {
  const bool null_means = key.starts_with("memory_") || key == "goal" || key == "gang" || key == "labels";
  if (value.is_null() && !null_means) return {};  // as if it were not there
  if (key == "name") return ReadText(key, value, request.name);
  if (key == "program") return ReadText(key, value, request.program);
  if (key == "gpu") return Read(key, value, request.gpu);
  if (key == "memory_request") return ReadBound(key, value, request.memory_request);
  if (key == "memory_limit") return ReadBound(key, value, request.memory_limit);
  if (key == "memory_max") return ReadBound(key, value, request.memory_max);
  if (key == "memory_swap_max") return ReadBound(key, value, request.memory_swap_max);
  if (key == "compute_request") return Read(key, value, request.compute_request);
  if (key == "compute_limit") return Read(key, value, request.compute_limit);
  if (key == "compute_weight") return Read(key, value, request.compute_weight);
  if (key == "compute_priority") return Read(key, value, request.compute_priority);
  if (key == "space") return ReadText(key, value, request.space);
  if (key == "sm_limit") return Read(key, value, request.sm_limit);
  if (key == "goal") return ReadOrNone(key, value, request.goal);
  if (key == "gang") return ReadOrNone(key, value, request.gang);
  if (key == "labels") return ReadLabels(key, value, request.labels);
  if (key == "sm_reserved") return ReadBool(key, value, request.sm_reserved);
  if (key == "sm_burst") return ReadBool(key, value, request.sm_burst);
  if (key == "key") return ReadText(key, value, request.key);
  if (key == "within_quota") return ReadBool(key, value, request.within_quota);
  if (key == "ephemeral") return ReadBool(key, value, request.ephemeral);
  if (key == "owner_pid") {
    if (!value.is_number_integer() || value < 1 || value > INT32_MAX) return Wrong(key, "a process ID");
    request.owner_pid = value.get<pid_t>();
    return {};
  }
  return Fail(EINVAL, fmt::format("unknown field \"{}\"", key),
              "use name, program, gpu, memory_request, memory_limit, memory_max, memory_swap_max, compute_request, "
              "compute_limit, compute_weight, compute_priority, goal, gang, space, sm_limit, sm_reserved, sm_burst, "
              "labels, key, within_quota, ephemeral or owner_pid");
}

}  // namespace

Result<server::VGpuRequest> ParseVGpuRequest(const std::string& body) {
  const json fields = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return Fail(EINVAL, "the body is not a JSON object");
  server::VGpuRequest request;
  for (const auto& [key, value] : fields.items()) {
    if (auto read = ReadField(key, value, request); !read) return std::unexpected(read.error());
  }
  return request;
}

Result<std::uint64_t> ParseEviction(const std::string& body) {
  const json fields = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return Fail(EINVAL, "the body is not a JSON object");
  for (const auto& [key, value] : fields.items()) {
    if (key != "to_bytes") return Fail(EINVAL, fmt::format("unknown field \"{}\"", key), "use to_bytes");
    if (!value.is_number_unsigned()) return Wrong(key, "a whole number of bytes");
  }
  return fields.value("to_bytes", std::uint64_t{0});
}

Result<bool> ParseSuspension(const std::string& body) {
  const json fields = body.empty() ? json::object() : json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return Fail(EINVAL, "the body is not a JSON object");
  bool file = false;
  for (const auto& [key, value] : fields.items()) {
    if (key != "to") return Fail(EINVAL, fmt::format("unknown field \"{}\"", key), "use to");
    if (value != "memory" && value != "file") return Wrong(key, "\"memory\" or \"file\"");
    file = value == "file";
  }
  return file;
}

Result<MigrationWish> ParseMigration(const std::string& body) {
  const json fields = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return Fail(EINVAL, "the body is not a JSON object");
  MigrationWish wish;
  for (const auto& [key, value] : fields.items()) {
    if (key == "dry_run") {
      if (!value.is_boolean()) return Wrong(key, "true or false");
      wish.dry_run = value.get<bool>();
    } else if (key == "gpus") {
      if (!value.is_array()) return Wrong(key, "an array of indices or UUIDs as strings");
      for (const json& gpu : value) {
        if (!gpu.is_string()) return Wrong(key, "an array of indices or UUIDs as strings");
        wish.gpus.push_back(gpu.get<std::string>());
      }
    } else {
      return Fail(EINVAL, fmt::format("unknown field \"{}\"", key), "use gpus and dry_run");
    }
  }
  if (wish.gpus.empty()) return Fail(EINVAL, "no GPU is named", R"(send {"gpus": ["1"]})");
  return wish;
}

Result<bool> ParseDryRun(const std::string& body) {
  const json fields = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return Fail(EINVAL, "the body is not a JSON object");
  for (const auto& [key, value] : fields.items()) {
    if (key != "dry_run") return Fail(EINVAL, fmt::format("unknown field \"{}\"", key), "use dry_run");
    if (!value.is_boolean()) return Wrong(key, "true or false");
  }
  return fields.value("dry_run", false);
}

Result<RoomWish> ParseRoomWish(const std::string& body) {
  const json fields = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return Fail(EINVAL, "the body is not a JSON object");
  RoomWish wish;
  for (const auto& [key, value] : fields.items()) {
    Result<void> read;
    if (key == "dry_run") {
      if (!value.is_boolean()) return Wrong(key, "true or false");
      wish.dry_run = value.get<bool>();
    } else if (key == "memory_request") {
      read = Read(key, value, wish.request.memory_request);
    } else if (key == "compute_request") {
      read = Read(key, value, wish.request.compute_request);
    } else {
      return Fail(EINVAL, fmt::format("unknown field \"{}\"", key), "use memory_request, compute_request and dry_run");
    }
    if (!read) return std::unexpected(read.error());
  }
  if (!wish.request.memory_request && !wish.request.compute_request)
    return Fail(EINVAL, "nothing is requested", "name memory_request or compute_request");
  return wish;
}

Result<std::string> ParseAdoption(const std::string& body) {
  const json fields = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object() || fields.size() != 1 || !fields.contains("vgpu") || !fields["vgpu"].is_string())
    return Fail(EINVAL, "the body is not a JSON object with the one field vgpu", R"(send {"vgpu": "NAME"})");
  return fields["vgpu"].get<std::string>();
}

Result<SpaceRequest> ParseSpaceRequest(const std::string& body) {
  const json parsed = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return Fail(EINVAL, "the body must be a JSON object");
  SpaceRequest request;
  for (const auto& [key, value] : parsed.items()) {
    Result<void> read = Fail(EINVAL, fmt::format("unknown field \"{}\"", key), "use name or gpu");
    if (key == "name") {
      std::optional<std::string> name;
      read = ReadText(key, value, name);
      request.name = name.value_or("");
    } else if (key == "gpu") {
      read = value.is_null() ? Result<void>() : Read(key, value, request.gpu);
    }
    if (!read) return std::unexpected(read.error());
  }
  return request;
}

}  // namespace tessera::face
