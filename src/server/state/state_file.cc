#include "server/state/state_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/whole_file.h"
#include "server/devices/gpu_driver.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

json ToJson(const SavedVGpu& saved) {
  const VGpuSpec& spec = saved.spec;
  json entry = {{"name", spec.name},
                {"gpu_uuid", FormatUuid(saved.gpu)},
                {"uid", spec.uid},
                {"ephemeral", spec.ephemeral},
                {"owner_pid", spec.owner_pid},
                {"owner_start", spec.owner_start},
                {"compute_request_pct", spec.compute.request_pct},
                {"compute_limit_pct", spec.compute.limit_pct},
                {"compute_weight", spec.compute.weight},
                {"compute_priority", spec.compute.priority},
                {"frozen", spec.frozen},
                {"owner_froze", spec.owner_froze}};
  if (spec.memory.request > 0) entry["memory_request"] = spec.memory.request;
  if (spec.memory.limit) entry["memory_limit"] = *spec.memory.limit;
  if (spec.memory.max) entry["memory_max"] = *spec.memory.max;
  if (spec.memory.swap) entry["memory_swap_max"] = *spec.memory.swap;
  if (!spec.space.empty()) {
    entry["space"] = spec.space;
    entry["sm_limit_pct"] = spec.compute.space.sm_pct;
    if (spec.compute.space.reserved) entry["sm_from_pct"] = spec.compute.space.from_pct;
    if (spec.compute.space.burst) entry["sm_burst"] = true;
  }
  if (spec.goal) entry["goal"] = sched::FormatGoal(*spec.goal);
  if (!spec.gang.empty()) entry["gang"] = spec.gang;
  if (!spec.key.empty()) entry["key"] = spec.key;
  if (!spec.labels.empty()) entry["labels"] = spec.labels;
  return entry;
}

std::optional<std::uint64_t> Bytes(const json& entry, const char* key) {
  return entry.contains(key) ? std::optional(entry.at(key).get<std::uint64_t>()) : std::nullopt;
}

Result<std::optional<sched::Goal>> GoalIn(const json& entry) {
  if (!entry.contains("goal")) return std::nullopt;
  auto goal = sched::ParseGoal(entry.at("goal").get<std::string>());
  if (!goal) return std::unexpected(goal.error());
  return *goal;
}

// Throws json::exception for what is missing or of another type.
Result<SavedVGpu> FromJson(const json& entry) {
  auto gpu = ParseUuid(entry.at("gpu_uuid").get<std::string>());
  if (!gpu) return std::unexpected(gpu.error());
  auto goal = GoalIn(entry);
  if (!goal) return std::unexpected(goal.error());
  return SavedVGpu{.spec = {.name = entry.at("name"),
                            .uid = entry.at("uid"),
                            .ephemeral = entry.at("ephemeral"),
                            .owner_pid = entry.at("owner_pid"),
                            .owner_start = entry.at("owner_start"),
                            .frozen = entry.value("frozen", false),
                            .owner_froze = entry.value("owner_froze", false),
                            .memory = {.request = Bytes(entry, "memory_request").value_or(0),
                                       .limit = Bytes(entry, "memory_limit"),
                                       .max = Bytes(entry, "memory_max"),
                                       .swap = Bytes(entry, "memory_swap_max")},
                            .compute = {.request_pct = entry.at("compute_request_pct"),
                                        .limit_pct = entry.at("compute_limit_pct"),
                                        .weight = entry.at("compute_weight"),
                                        .priority = entry.value("compute_priority", sched::Shares{}.priority),
                                        .space = {.sm_pct = entry.value("sm_limit_pct", 100.0),
                                                  .reserved = entry.contains("sm_from_pct"),
                                                  .from_pct = entry.value("sm_from_pct", 0.0),
                                                  .burst = entry.value("sm_burst", false)}},
                            .goal = *goal,
                            .space = entry.value("space", std::string()),
                            .gang = entry.value("gang", std::string()),
                            .key = entry.value("key", std::string()),
                            .labels = entry.value("labels", Labels())},
                   .gpu = *gpu};
}

json ToJson(const SavedProcess& saved) {
  json objects = json::array();
  for (const channel::ObjectEvent& object : saved.objects)
    objects.push_back({object.fd, object.client, object.parent, object.object, object.cls, object.detail});
  return {{"pid", saved.pid},
          {"start", saved.start},
          {"vgpu", saved.vgpu},
          {"frozen", saved.frozen},
          {"objects", std::move(objects)}};
}

// Throws json::exception likewise.
SavedProcess ProcessFrom(const json& entry) {
  SavedProcess saved{
      .pid = entry.at("pid"), .start = entry.at("start"), .vgpu = entry.at("vgpu"), .frozen = entry.at("frozen")};
  for (const json& object : entry.at("objects")) {
    saved.objects.push_back({.fd = object.at(0),
                             .client = object.at(1),
                             .parent = object.at(2),
                             .object = object.at(3),
                             .cls = object.at(4),
                             .detail = object.at(5)});
  }
  return saved;
}

json ToJson(const SavedProgram& saved) {
  return {{"pid", saved.name.pid}, {"start", saved.name.start}, {"gpu_uuid", FormatUuid(saved.gpu)}};
}

// Throws json::exception likewise.
Result<SavedProgram> ProgramFrom(const json& entry) {
  auto gpu = ParseUuid(entry.at("gpu_uuid").get<std::string>());
  if (!gpu) return std::unexpected(gpu.error());
  return SavedProgram{.name = {.pid = entry.at("pid"), .start = entry.at("start")}, .gpu = *gpu};
}

json ToJson(const SavedSpace& saved) {
  return {{"name", saved.name}, {"gpu_uuid", FormatUuid(saved.gpu)}, {"uid", saved.uid}};
}

// Throws json::exception likewise.
Result<SavedSpace> SpaceFrom(const json& entry) {
  auto gpu = ParseUuid(entry.at("gpu_uuid").get<std::string>());
  if (!gpu) return std::unexpected(gpu.error());
  return SavedSpace{.name = entry.at("name"), .gpu = *gpu, .uid = entry.at("uid")};
}

template <typename Saved>
json ToArray(const std::vector<Saved>& all) {
  json array = json::array();
  for (const Saved& saved : all) array.push_back(ToJson(saved));
  return array;
}

}  // namespace

std::string FormatState(const SavedState& state) {
  json saved = {{"version", kVersion},
                {"vgpus", ToArray(state.vgpus)},
                {"processes", ToArray(state.processes)},
                {"programs", ToArray(state.programs)},
                {"spaces", ToArray(state.spaces)}};
  for (const wire::Uuid& gpu : state.draining) saved["draining"].push_back(FormatUuid(gpu));
  return saved.dump(1) + "\n";
}

Result<SavedState> ParseState(const std::string& text) {
  try {
    const json parsed = json::parse(text);
    if (const int version = parsed.at("version"); version != kVersion) {
      return Fail(EBADMSG,
                  "it is of version " + std::to_string(version) + ", this daemon reads " + std::to_string(kVersion));
    }
    SavedState state;
    for (const json& entry : parsed.at("vgpus")) {
      auto saved = FromJson(entry);
      if (!saved) return Fail(EBADMSG, saved.error().message);
      state.vgpus.push_back(std::move(*saved));
    }
    for (const json& entry : parsed.value("processes", json::array())) state.processes.push_back(ProcessFrom(entry));
    for (const json& entry : parsed.value("programs", json::array())) {
      auto saved = ProgramFrom(entry);
      if (!saved) return Fail(EBADMSG, saved.error().message);
      state.programs.push_back(*saved);
    }
    for (const json& entry : parsed.value("spaces", json::array())) {
      auto saved = SpaceFrom(entry);
      if (!saved) return Fail(EBADMSG, saved.error().message);
      state.spaces.push_back(std::move(*saved));
    }
    for (const json& entry : parsed.value("draining", json::array())) {
      const auto gpu = ParseUuid(entry.get<std::string>());
      if (!gpu) return Fail(EBADMSG, gpu.error().message);
      state.draining.push_back(*gpu);
    }
    return state;
  } catch (const json::exception& error) {
    return Fail(EBADMSG, error.what());
  }
}

Result<SavedState> LoadState(const std::string& path) {
  std::ifstream file(path);
  if (!file && errno == ENOENT) return {};
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return FailErrno("cannot read " + path);
  auto state = ParseState(text.str());
  if (!state) state.error().message = path + ": " + state.error().message;
  return state;
}

SavedState LoadStateOrSetAside(const std::string& path) {
  auto saved = LoadState(path);
  if (saved) return std::move(*saved);
  // Never over an earlier one: it may be all that is left of somebody's vGPUs.
  std::string aside = path + ".bad";
  for (int n = 1; access(aside.c_str(), F_OK) == 0; ++n) aside = fmt::format("{}.bad.{}", path, n);
  const bool kept = std::rename(path.c_str(), aside.c_str()) == 0;
  log::Error("{}; starting without its vGPUs; {}", saved.error().message,
             kept ? "the file is kept as " + aside : "it cannot be set aside: " + std::string(std::strerror(errno)));
  return {};
}

Result<void> SaveState(const std::string& path, const std::string& text) {
  return ReplaceFile(path, text, 0600, "make room there; after a restart the daemon has the vGPUs of the last file");
}

}  // namespace tessera::server
