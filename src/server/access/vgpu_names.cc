#include "server/access/vgpu_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace tessera::server {
namespace {

constexpr std::size_t kShortestKey = 16, kLongestKey = 64;

bool MayKeyContain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

}  // namespace

VGpuNames SplitNames(std::string_view text) {
  const std::size_t colon = text.find(':');
  VGpuNames said{.names = {}, .key = colon == text.npos ? std::string_view() : text.substr(colon + 1)};
  for (const auto part : std::views::split(text.substr(0, colon), ','))
    said.names.emplace_back(part.begin(), part.end());
  return said;
}

bool IsKeptName(std::string_view name) {
  constexpr std::size_t kUid = 36;
  if (name.starts_with("slurm-") || name.starts_with("device-plugin.")) return true;
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  const std::string_view uid = name.substr(dot + 1, kUid), rest = name.substr(std::min(name.size(), dot + 1 + kUid));
  return uid.size() == kUid && uid.find_first_not_of("0123456789abcdef-") == uid.npos &&
         (rest.empty() || rest.starts_with('-'));
}

Result<void> CheckKey(std::string_view key) {
  if (key.empty()) return {};
  if (key.size() >= kShortestKey && key.size() <= kLongestKey && std::ranges::all_of(key, MayKeyContain)) return {};
  return Fail(EINVAL, "the key is none", "use 16 to 64 letters, digits, dashes and underscores, chosen at random");
}

bool OpensWith(std::string_view key, std::string_view said) {
  if (key.empty()) return true;
  if (key.size() != said.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < key.size(); ++i)
    different |= static_cast<unsigned char>(key[i]) ^ static_cast<unsigned char>(said[i]);
  return different == 0;
}

Result<void> CheckOpens(std::string_view vgpu, std::string_view key, std::string_view said) {
  if (OpensWith(key, said)) return {};
  return Fail(EACCES, fmt::format("vGPU {} is joined with its key only", vgpu),
              "its containers have it: TESSERA_VGPU=NAME:KEY");
}

}  // namespace tessera::server
