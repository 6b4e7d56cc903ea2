#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/size.h"
#include "server/config/config_keys.h"

namespace tessera::server {
namespace {

using Set = ConfigKey::Set;

bool IsBound(const std::string& text) { return text == "max" || ParseSize(text, kGiB); }

// A text, or a number as its text.
std::optional<std::string> TextIn(const toml::node& node) {
  if (auto text = node.value_exact<std::string>()) return text;
  if (auto whole = node.value_exact<std::int64_t>()) return std::to_string(*whole);
  if (auto number = node.value_exact<double>()) return fmt::format("{:g}", *number);
  return {};
}

Set QuotaSize(std::optional<std::string> QuotaBounds::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto text = node.value<std::string>();
    if (!text || !IsBound(*text)) return "a size (\"20G\"), a percentage of all (\"50%\") or \"max\"";
    config.quotas.back().bounds.*field = *text;
    return nullptr;
  };
}

Set QuotaNumber(std::optional<std::uint64_t> QuotaBounds::* field, std::int64_t most, const char* expected) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto number = node.value_exact<std::int64_t>();
    const bool none = node.value_exact<std::string>() == "max";
    if (!none && (!number || *number < 0 || *number > most)) return expected;
    config.quotas.back().bounds.*field = none ? QuotaBounds::kNone : static_cast<std::uint64_t>(*number);
    return nullptr;
  };
}

const char* SetQuotaCompute(const toml::node& node, Config& config) {
  const auto value = node.value<double>();
  if (!value || *value < 0 || *value > 100) return "a percentage from 0 to 100";
  config.quotas.back().bounds.compute = value;
  return nullptr;
}

// What the text may be depends on the GPU, and is checked when the vGPU is made.
Set VGpuField(std::optional<std::string> DeclaredVGpu::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    auto text = TextIn(node);
    if (!text) return "a number or a text";
    config.vgpus.back().*field = std::move(text);
    return nullptr;
  };
}

Set VGpuFlag(bool DeclaredVGpu::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto flag = node.value_exact<bool>();
    if (!flag) return "true or false";
    config.vgpus.back().*field = *flag;
    return nullptr;
  };
}

const char* SetVGpuUser(const toml::node& node, Config& config) {
  auto text = TextIn(node);
  if (!text || text->empty()) return "the name or number of a user";
  config.vgpus.back().user = std::move(*text);
  return nullptr;
}

// Which they may be is checked when the vGPU is made.
const char* SetVGpuLabels(const toml::node& node, Config& config) {
  constexpr const char* kExpected = "a table of texts, such as {team = \"a\"}";
  if (!node.is_table()) return kExpected;
  for (const auto& [key, value] : *node.as_table()) {
    const auto text = value.value_exact<std::string>();
    if (!text) return kExpected;
    config.vgpus.back().labels[std::string(key.str())] = *text;
  }
  return nullptr;
}

}  // namespace

std::vector<ConfigKey> SectionKeys() {
  return {
      {.name = "quota.NAME.memory",
       .standard = "\"50%\"",
       .values = "size, percentage of the memory of all GPUs together, or `\"max\"`",
       .meaning = "GPU memory that all vGPUs of a user may be promised together. For the names of quotas see "
                  "[below](#quotas)",
       .live = true,
       .set = QuotaSize(&QuotaBounds::memory)},
      {.name = "quota.NAME.swap",
       .standard = "\"max\"",
       .values = "size, percentage of the host memory that all GPUs have (`swap.size`), or `\"max\"`",
       .meaning = "sum of `memory.swap.max` over a user's vGPUs. Where it is bounded, a vGPU that is made without "
                  "`memory.swap.max` gets an equal part for each of `quota.NAME.vgpus`, at most what is left",
       .live = true,
       .set = QuotaSize(&QuotaBounds::swap)},
      {.name = "quota.NAME.compute",
       .standard = "50",
       .values = "0 to 100 (percent of the time of all GPUs together)",
       .meaning = "sum of `compute.request` over a user's vGPUs",
       .live = true,
       .set = SetQuotaCompute},
      {.name = "quota.NAME.vgpus",
       .standard = "16",
       .values = "0 to 100000, or `\"max\"`",
       .meaning = "vGPUs of a user",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::vgpus, 100'000, "a number from 0 to 100000, or \"max\"")},
      {.name = "quota.NAME.processes",
       .standard = "64",
       .values = "0 to 100000, or `\"max\"`",
       .meaning = "processes of a user in vGPUs, each GPU that one uses counted; whoever owns the vGPU",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::processes, 100'000, "a number from 0 to 100000, or \"max\"")},
      {.name = "quota.NAME.sessions",
       .standard = "512",
       .values = "0 to 100000, or `\"max\"`",
       .meaning = "connections of a user's programs to the daemon. Each takes three of its descriptors",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::sessions, 100'000, "a number from 0 to 100000, or \"max\"")},
      {.name = "quota.NAME.priority",
       .standard = "8",
       .values = "0 to 15",
       .meaning = "the lowest number of `compute.priority` that a user may give: lower ones go before it",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::priority, 15, "a number from 0 to 15")},
      {.name = "quota.NAME.weight",
       .standard = "100",
       .values = "1 to 10000",
       .meaning = "highest `compute.weight` that a user may give",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::weight, 10'000, "a number from 1 to 10000")},
      {.name = "vgpu.NAME.user",
       .standard = "\"root\"",
       .values = "name or number of a user",
       .meaning = "owner of this vGPU; those of root are for everybody. For these sections see "
                  "[below](#vgpus-that-the-configuration-declares)",
       .live = true,
       .set = SetVGpuUser},
      {.name = "vgpu.NAME.gpu",
       .standard = "\"auto\"",
       .values = "index, UUID or `\"auto\"`",
       .meaning = "its GPU, when it is made",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::gpu)},
      {.name = "vgpu.NAME.memory_request",
       .standard = "\"0\"",
       .values = "size, or percentage of the GPU",
       .meaning = "as in the API's requests ([protocol](../protocol.md)), and so the next ones",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::memory_request)},
      {.name = "vgpu.NAME.memory_limit",
       .standard = "\"max\"",
       .values = "likewise, or `\"max\"`",
       .meaning = "memory that may lie on the GPU",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::memory_limit)},
      {.name = "vgpu.NAME.memory_max",
       .standard = "\"max\"",
       .values = "likewise",
       .meaning = "memory that may be allocated",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::memory_max)},
      {.name = "vgpu.NAME.memory_swap_max",
       .standard = "\"max\"",
       .values = "likewise, or `\"0\"`",
       .meaning = "of that, what may lie in host memory",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::memory_swap_max)},
      {.name = "vgpu.NAME.compute_request",
       .standard = "0",
       .values = "0 to 100 (percent)",
       .meaning = "time that it gets whenever it wants it",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::compute_request)},
      {.name = "vgpu.NAME.compute_limit",
       .standard = "100",
       .values = "0 to 100 (percent)",
       .meaning = "time that it never exceeds",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::compute_limit)},
      {.name = "vgpu.NAME.compute_weight",
       .standard = "100",
       .values = "1 to 10000",
       .meaning = "its part of the time that is promised to none",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::compute_weight)},
      {.name = "vgpu.NAME.compute_priority",
       .standard = "8",
       .values = "0 (first) to 15",
       .meaning = "its class",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::compute_priority)},
      {.name = "vgpu.NAME.space",
       .standard = "none",
       .values = "name",
       .meaning = "space in which it runs beside others, when it is made",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::space)},
      {.name = "vgpu.NAME.sm_limit",
       .standard = "100",
       .values = "0 to 100 (percent)",
       .meaning = "the GPU's SMs that it uses at most; needs a space",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::sm_limit)},
      {.name = "vgpu.NAME.sm_reserved",
       .standard = "false",
       .values = "true or false",
       .meaning = "whether these SMs are its own, when it is made",
       .live = true,
       .set = VGpuFlag(&DeclaredVGpu::sm_reserved)},
      {.name = "vgpu.NAME.sm_burst",
       .standard = "false",
       .values = "true or false",
       .meaning = "whether it may use all SMs while no other vGPU of its space has programs; needs `sm_reserved`",
       .live = true,
       .set = VGpuFlag(&DeclaredVGpu::sm_burst)},
      {.name = "vgpu.NAME.goal",
       .standard = "\"none\"",
       .values = "`\"p99=20ms\"`, `\"speed=80%\"` or `\"none\"`",
       .meaning = "part of its bursts that ends within a time, or part of the speed that it has alone",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::goal)},
      {.name = "vgpu.NAME.gang",
       .standard = "\"none\"",
       .values = "name, or `\"none\"`",
       .meaning = "gang of vGPUs of this user, on several GPUs, that have their turns together",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::gang)},
      {.name = "vgpu.NAME.labels",
       .standard = "{}",
       .values = "table of texts, such as `{team = \"a\"}`",
       .meaning = "labels that its metrics carry ([Prometheus](../prometheus.md#labels-of-vgpus))",
       .live = true,
       .set = SetVGpuLabels},
  };
}

}  // namespace tessera::server
