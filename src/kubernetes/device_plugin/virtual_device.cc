#include "kubernetes/device_plugin/virtual_device.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/json_fields.h"

namespace tessera::kubernetes {

using client::BoolField;
using client::Field;
using client::TextField;

namespace {

constexpr std::size_t kLongestId = 63;
constexpr std::string_view kBetween = "::", kDevicePrefix = "device-plugin.";

// FNV-1a, which is the same everywhere and for ever.
std::uint64_t Hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::string IdOf(const VirtualDevice& device) {
  return fmt::format("{}{}{}", device.gpu_uuid, kBetween, device.number);
}

Result<VirtualDevice> ReadId(std::string_view id) {
  const std::size_t between = id.rfind(kBetween);
  VirtualDevice device;
  if (between != std::string_view::npos && between > 0) {
    const std::string_view digits = id.substr(between + kBetween.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.number);
    device.gpu_uuid = id.substr(0, between);
    if (error == std::errc() && end == digits.data() + digits.size() && IdOf(device) == id) return device;
  }
  return Fail(EINVAL, fmt::format("\"{}\" is no device of {}", id, kVGpuResource));
}

std::vector<OfferedDevice> OfferedDevices(const Json& gpus, std::uint32_t each) {
  std::vector<OfferedDevice> devices;
  for (const Json& gpu : Field(gpus, "gpus")) {
    const std::string uuid = TextField(gpu, "uuid");
    if (uuid.empty() || IdOf({uuid, each}).size() > kLongestId) continue;
    const bool healthy = !BoolField(Field(gpu, "health"), "failed");
    for (std::uint32_t i = 0; i < each; ++i) devices.push_back({IdOf({uuid, i}), healthy});
  }
  return devices;
}

Result<std::vector<ContainerVGpu>> VGpusFor(const std::set<std::string>& ids) {
  std::map<std::string, std::set<std::uint32_t>> numbers;
  for (const std::string& id : ids) {
    auto device = ReadId(id);
    if (!device) return std::unexpected(device.error());
    numbers[device->gpu_uuid].insert(device->number);
  }
  if (numbers.empty()) return Fail(EINVAL, fmt::format("no device of {} is named", kVGpuResource));
  std::vector<ContainerVGpu> vgpus;
  for (const auto& [uuid, of_gpu] : numbers)
    vgpus.push_back({.gpu_uuid = uuid,
                     .name = fmt::format("{}{}.{}", kDevicePrefix, uuid, *of_gpu.begin()),
                     .devices = static_cast<std::uint32_t>(of_gpu.size())});
  return vgpus;
}

std::string CdiDeviceOf(const std::vector<ContainerVGpu>& vgpus) {
  if (vgpus.size() == 1) return vgpus.front().name;
  std::string names;
  for (const ContainerVGpu& vgpu : vgpus) names += vgpu.name + ",";
  return fmt::format("{}{}-gpus.{:016x}", kDevicePrefix, vgpus.size(), Hash(names));
}

bool IsOfDevicePlugin(std::string_view name) { return name.starts_with(kDevicePrefix); }

}  // namespace tessera::kubernetes
