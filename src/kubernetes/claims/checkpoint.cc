#include "kubernetes/claims/checkpoint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/whole_file.h"

namespace tessera::kubernetes {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

json ToJson(const Checkpoint::Claims& claims) {
  json all = json::object();
  for (const auto& [uid, claim] : claims) {
    json devices = json::array();
    for (const PreparedDevice& device : claim.devices)
      devices.push_back({{"request", device.request},
                         {"pool", device.pool},
                         {"device", device.device},
                         {"share_id", device.share_id},
                         {"vgpu", device.vgpu}});
    all[uid] = {{"namespace", claim.namespace_name}, {"name", claim.name}, {"complete", claim.complete},
                {"kernel_gate", claim.kernel_gate},  {"key", claim.key},   {"change", claim.change},
                {"devices", std::move(devices)}};
  }
  return all;
}

std::string ChecksumOf(const json& claims) {
  const std::string text = claims.dump();
  return fmt::format("{:08x}", crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

}  // namespace

std::string FormatCheckpoint(const Checkpoint::Claims& claims) {
  const json all = ToJson(claims);
  return json{{"version", kVersion}, {"crc32", ChecksumOf(all)}, {"claims", all}}.dump(1) + "\n";
}

Result<Checkpoint::Claims> ParseCheckpoint(const std::string& text) {
  try {
    const json file = json::parse(text);
    if (file.at("version") != kVersion)
      return Fail(EBADMSG, fmt::format("it is of version {}", file.at("version").dump()));
    const json& all = file.at("claims");
    if (file.at("crc32") != ChecksumOf(all)) return Fail(EBADMSG, "its checksum is wrong");
    Checkpoint::Claims claims;
    for (const auto& [uid, entry] : all.items()) {
      PreparedClaim& claim = claims[uid];
      claim = {.namespace_name = entry.at("namespace"),
               .name = entry.at("name"),
               .complete = entry.at("complete"),
               .kernel_gate = entry.value("kernel_gate", false),
               .key = entry.value("key", std::string()),
               .change = entry.value("change", std::string()),
               .devices = {}};
      for (const json& device : entry.at("devices"))
        claim.devices.push_back({.request = device.at("request"),
                                 .pool = device.at("pool"),
                                 .device = device.at("device"),
                                 .share_id = device.at("share_id"),
                                 .vgpu = device.at("vgpu")});
    }
    return claims;
  } catch (const json::exception& error) {
    return Fail(EBADMSG, error.what());
  }
}

Result<Checkpoint> Checkpoint::Read(std::string path) {
  Checkpoint checkpoint(std::move(path));
  std::ifstream file(checkpoint.path_);
  if (!file && errno == ENOENT) return checkpoint;
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return FailErrno("cannot read " + checkpoint.path_);
  auto claims = ParseCheckpoint(text.str());
  if (!claims)
    return Fail(EBADMSG, checkpoint.path_ + ": " + claims.error().message,
                "remove it if no pod of this node uses a claim of Tessera");
  checkpoint.claims_ = std::move(*claims);
  return checkpoint;
}

const PreparedClaim* Checkpoint::Find(const std::string& uid) const {
  const auto found = claims_.find(uid);
  return found == claims_.end() ? nullptr : &found->second;
}

Result<void> Checkpoint::Put(const std::string& uid, PreparedClaim claim) {
  Claims claims = claims_;
  claims[uid] = std::move(claim);
  return Replace(std::move(claims));
}

Result<void> Checkpoint::Remove(const std::string& uid) {
  Claims claims = claims_;
  if (claims.erase(uid) == 0) return {};
  return Replace(std::move(claims));
}

Result<void> Checkpoint::Replace(Claims claims) {
  auto written = ReplaceFile(path_, FormatCheckpoint(claims), 0600, "make room there; the kubelet asks again");
  if (written) claims_ = std::move(claims);
  return written;
}

}  // namespace tessera::kubernetes
