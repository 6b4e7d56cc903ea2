#include "kubernetes/claims/claim.h"

#include <fmt/format.h>

#include <utility>

#include "client/json_fields.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/objects/quantity.h"

namespace tessera::kubernetes {

using client::Field;
using client::TextField;

namespace {

Result<AllocatedDevice> ReadDevice(const Json& result) {
  AllocatedDevice device{.request = TextField(result, "request"),
                         .pool = TextField(result, "pool"),
                         .device = TextField(result, "device"),
                         .share_id = TextField(result, "shareID"),
                         .consumed = {}};
  if (device.request.empty() || device.device.empty()) return Fail(EPROTO, "a device of the claim has no name");
  for (const auto& [name, value] : Field(result, "consumedCapacity").items()) {
    const auto amount = value.is_string()   ? ParseQuantity(value.get<std::string>())
                        : value.is_number() ? ParseQuantity(value.dump())
                                            : Fail(EINVAL, "capacity " + name + " is no quantity");
    if (!amount) return std::unexpected(amount.error());
    device.consumed[name] = *amount;
  }
  return device;
}

}  // namespace

Result<void> AddChange(const std::string& config, Claim& claim) {
  if (config.empty()) return {};
  Json parameters = Json::parse(config, nullptr, false);
  if (!parameters.is_object())
    return Fail(EINVAL, "the pod's annotation is no JSON object", R"(write it so: {"compute": {"weight": 300}})");
  parameters.emplace("apiVersion", kParametersVersion);
  parameters.emplace("kind", kParametersKind);
  claim.parameters.push_back({.requests = {}, .later = true, .parameters = std::move(parameters)});
  return {};
}

Result<Claim> ReadClaim(const Json& object, std::string_view pool) {
  const Json& metadata = Field(object, "metadata");
  Claim claim{.namespace_name = TextField(metadata, "namespace"),
              .name = TextField(metadata, "name"),
              .uid = TextField(metadata, "uid"),
              .devices = {},
              .parameters = {}};
  if (claim.uid.empty()) return Fail(EPROTO, "the API server's answer is no ResourceClaim");
  const Json& allocated = Field(Field(Field(object, "status"), "allocation"), "devices");
  if (!allocated.is_object())
    return Fail(EPROTO, fmt::format("claim {}/{} is not allocated", claim.namespace_name, claim.name),
                "the kubelet asks again when it is");
  for (const Json& result : Field(allocated, "results")) {
    if (TextField(result, "driver") != kDriver || TextField(result, "pool") != pool) continue;
    auto device = ReadDevice(result);
    if (!device) return std::unexpected(device.error());
    claim.devices.push_back(std::move(*device));
  }
  for (const char* source : {"FromClass", "FromClaim"}) {
    for (const Json& config : Field(allocated, "config")) {
      const Json& opaque = Field(config, "opaque");
      if (TextField(config, "source") != source || TextField(opaque, "driver") != kDriver) continue;
      ClaimParameters parameters{.requests = {}, .later = false, .parameters = Field(opaque, "parameters")};
      for (const Json& request : Field(config, "requests")) {
        if (request.is_string()) parameters.requests.push_back(request.get<std::string>());
      }
      claim.parameters.push_back(std::move(parameters));
    }
  }
  return claim;
}

}  // namespace tessera::kubernetes
