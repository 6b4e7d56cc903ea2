#include "kubernetes/claims/claim_status.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "client/json_fields.h"
#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {

using client::Field;
using client::Json;
using client::TextField;

namespace {

constexpr std::size_t kLongestMessage = 1024;
constexpr std::array kIdentity{"driver", "pool", "device", "shareID"};

bool SameDevice(const Json& a, const Json& b) {
  return std::ranges::all_of(kIdentity, [&](const char* key) { return TextField(a, key) == TextField(b, key); });
}

Json Written(const Condition& condition, const std::string& now) {
  return {{"type", condition.type},
          {"status", condition.good ? "True" : "False"},
          {"reason", condition.reason},
          {"message", condition.message.substr(0, kLongestMessage)},
          {"lastTransitionTime", now}};
}

// In whatever order the fields are.
bool Same(const Json& a, const Json& b) { return nlohmann::json(a) == nlohmann::json(b); }

// The device's conditions with this one, which keeps its time if its status is as before.
Json With(const Condition& condition, const Json& before, const std::string& now) {
  Json written = Written(condition, now), all = Json::array();
  for (const Json& each : before) {
    if (TextField(each, "type") != condition.type) {
      all.push_back(each);
    } else if (Field(each, "status") == written["status"]) {
      written["lastTransitionTime"] = TextField(each, "lastTransitionTime", now);
    }
  }
  all.push_back(std::move(written));
  return all;
}

}  // namespace

Json StatusWith(const Condition& condition, const Json& claim, const std::string& pool, const PreparedClaim* prepared,
                const std::string& now) {
  const Json& status = Field(claim, "status");
  Json devices = Json::array();
  bool changes = false;
  for (const Json& result : Field(Field(Field(status, "allocation"), "devices"), "results")) {
    if (TextField(result, "driver") != kDriver || TextField(result, "pool") != pool) continue;
    Json device = Json::object();
    for (const char* key : kIdentity) {
      if (const std::string value = TextField(result, key); !value.empty()) device[key] = value;
    }
    Json before = Json::object();
    for (const Json& each : Field(status, "devices")) {
      if (SameDevice(each, device)) before = each;
    }
    device["conditions"] = With(condition, Field(before, "conditions"), now);
    if (before.contains("data")) device["data"] = before["data"];
    for (const PreparedDevice& each : prepared ? prepared->devices : std::vector<PreparedDevice>()) {
      if (each.device == TextField(device, "device") && each.share_id == TextField(device, "shareID"))
        device["data"] = {{"vgpu", each.vgpu}};
    }
    changes = changes || !Same(device, before);
    devices.push_back(std::move(device));
  }
  if (!changes) return {};
  const Json& metadata = Field(claim, "metadata");
  return {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceClaim"},
          {"metadata",
           {{"name", TextField(metadata, "name")},
            {"namespace", TextField(metadata, "namespace")},
            {"uid", TextField(metadata, "uid")}}},
          {"status", {{"devices", std::move(devices)}}}};
}

}  // namespace tessera::kubernetes
