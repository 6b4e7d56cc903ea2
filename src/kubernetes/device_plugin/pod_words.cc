#include "kubernetes/device_plugin/pod_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/objects/amounts.h"
#include "kubernetes/objects/quantity.h"

namespace tessera::kubernetes {

using client::Field;
using client::IntegerField;
using client::TextField;

namespace {

constexpr std::string_view kDomain = "tessera.dev/";
constexpr std::uint64_t kStandardWeight = 100, kGreatestWeight = 10000;  // of a vGPU

// An annotation, behind the domain. The daemon itself reads the last three, which are fields of its API.
struct Word {
  std::string_view name, field;
};
constexpr std::string_view kQuotaRequest = "gpu_quota_request", kQuotaLimit = "gpu_quota_limit",
                           kSmPartition = "gpu_sm_partition", kMemory = "gpu_mem", kMemoryMax = "memory-max";
constexpr auto kWords = std::to_array<Word>({{kQuotaRequest, ""},
                                             {kQuotaLimit, ""},
                                             {kSmPartition, ""},
                                             {kMemory, ""},
                                             {kMemoryMax, ""},
                                             {"weight", "compute_weight"},
                                             {"priority", "compute_priority"},
                                             {"goal", "goal"}});

std::string Named(std::string_view word) { return fmt::format("annotation {}{}", kDomain, word); }

std::string AllWords() {
  std::string all;
  for (const Word& word : kWords) all += fmt::format("{}{}", all.empty() ? "" : ", ", word.name);
  return all;
}

Result<Json> AnnotationsOf(const Json& pod) {
  Json ours = Json::object();
  for (const auto& [key, value] : Field(Field(pod, "metadata"), "annotations").items()) {
    if (!key.starts_with(kDomain)) continue;
    const std::string word = key.substr(kDomain.size());
    if (std::ranges::find(kWords, word, &Word::name) == kWords.end())
      return Fail(EINVAL, Named(word) + " is unknown", fmt::format("use {} behind {}", AllWords(), kDomain));
    ours[word] = value;
  }
  return ours;
}

// A number above 0 and up to `most`, if the word is there.
Result<std::optional<double>> NumberOf(const Json& words, std::string_view word, double most) {
  if (!words.contains(word)) return std::optional<double>();
  const std::string text = TextField(words, std::string(word).c_str());
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= most))
    return Fail(EINVAL, fmt::format("{} is \"{}\"", Named(word), text),
                fmt::format("it is a number above 0, and {} at most", most));
  return std::optional(value);
}

Result<std::optional<std::uint64_t>> BytesOf(const Json& words, std::string_view word) {
  if (!words.contains(word)) return std::optional<std::uint64_t>();
  const std::string text = TextField(words, std::string(word).c_str());
  const auto bytes = ParseQuantity(text);
  if (!bytes) return Fail(EINVAL, Named(word) + " is wrong: " + bytes.error().Text());
  return std::optional(*bytes);
}

// Time. A part of the SMs counts as that part of the time: the same amount of the GPU.
Result<void> AddCompute(const Json& words, std::uint64_t cores, double parts, Json& terms) {
  if (cores > 0) terms["compute_request"] = terms["compute_limit"] = static_cast<double>(cores) * parts;
  constexpr double kWhole = 100;
  const auto request = NumberOf(words, kQuotaRequest, 1), limit = NumberOf(words, kQuotaLimit, 1),
             sm = NumberOf(words, kSmPartition, kWhole);
  for (const auto* read : {&request, &limit, &sm}) {
    if (!*read) return std::unexpected(read->error());
  }
  const double of_sms = sm->value_or(kWhole);
  if (*limit || *sm) terms["compute_limit"] = limit->value_or(1) * of_sms;
  if (const std::optional<double>& quota = *request) {
    terms["compute_request"] = *quota * of_sms;
  } else if (*sm && !*limit) {
    terms["compute_request"] = of_sms;
  }
  return {};
}

Result<void> AddMemory(const Json& words, std::uint64_t mebibytes, double parts, Json& terms) {
  const auto annotated = BytesOf(words, kMemory), most = BytesOf(words, kMemoryMax);
  if (!annotated) return std::unexpected(annotated.error());
  if (!most) return std::unexpected(most.error());
  if (mebibytes > 0 && *annotated)
    return Fail(EINVAL, fmt::format("the pod has {} and {}", kMemoryResource, Named(kMemory)), "leave one of them out");
  const auto counted = static_cast<std::uint64_t>(static_cast<double>(mebibytes) * parts * kMebibyte);
  if (const std::uint64_t bytes = annotated->value_or(counted); bytes > 0)
    terms["memory_request"] = terms["memory_limit"] = terms["memory_max"] = bytes;
  if (const std::optional<std::uint64_t>& bytes = *most) terms["memory_max"] = *bytes;
  return {};
}

Result<std::uint64_t> DevicesOf(const Json& container) { return AskedOf(container, kVGpuResource); }

}  // namespace

Result<const Json*> ContainerOf(const Json& pod, const std::string& name) {
  const Json& spec = Field(pod, "spec");
  for (const char* kind : {"containers", "initContainers"}) {
    for (const Json& container : Field(spec, kind)) {
      if (TextField(container, "name") == name) return &container;
    }
  }
  return Fail(ENOENT, fmt::format("pod {} has no container {}", TextField(Field(pod, "metadata"), "name"), name));
}

Result<std::uint64_t> AskedOf(const Json& container, const char* resource) {
  const Json& asked = Field(Field(Field(container, "resources"), "limits"), resource);
  if (asked.is_null()) return 0;
  const auto amount = ParseQuantity(asked.is_string() ? asked.get<std::string>() : asked.dump());
  if (!amount) return Fail(EINVAL, fmt::format("limit {} is wrong: {}", resource, amount.error().Text()));
  return *amount;
}

Json TermsOf(const ContainerVGpu& vgpu) {
  return {{"compute_weight", std::min(kGreatestWeight, kStandardWeight * vgpu.devices)}};
}

Result<Json> TermsOf(const Json& pod, const std::string& container, const ContainerVGpu& vgpu) {
  const auto found = ContainerOf(pod, container);
  if (!found) return std::unexpected(found.error());
  const auto words = AnnotationsOf(pod);
  if (!words) return std::unexpected(words.error());
  const auto devices = DevicesOf(**found), memory = AskedOf(**found, kMemoryResource),
             cores = AskedOf(**found, kComputeResource);
  for (const auto* read : {&devices, &memory, &cores}) {
    if (!*read) return std::unexpected(read->error());
  }
  // An init container may be the one that has these devices now, with fewer of them.
  const double parts = static_cast<double>(vgpu.devices) / static_cast<double>(std::max<std::uint64_t>(*devices, 1));
  Json terms = TermsOf(vgpu);
  if (auto added = AddCompute(*words, *cores, parts, terms); !added) return std::unexpected(added.error());
  if (auto added = AddMemory(*words, *memory, parts, terms); !added) return std::unexpected(added.error());
  for (const Word& word : kWords) {
    if (!word.field.empty() && words->contains(word.name))
      terms[std::string(word.field)] = (*words)[std::string(word.name)];
  }
  return terms;
}

std::uint64_t MemoryForEach(const Json& pod, const std::string& container) {
  const auto terms = TermsOf(pod, container, {.gpu_uuid = {}, .name = {}, .devices = 1});
  return terms ? IntegerField(*terms, "memory_request") : 0;
}

}  // namespace tessera::kubernetes
