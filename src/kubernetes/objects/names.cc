#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {
namespace {

constexpr std::size_t kUid = 36;

}  // namespace

std::string DeviceNameOf(std::string_view uuid) {
  std::string name(uuid);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name.starts_with("gpu-") ? name : "gpu-" + name;
}

bool IsUid(std::string_view text) {
  return text.size() == kUid && text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

std::string UidIn(const std::string& vgpu) {
  const std::size_t dot = vgpu.rfind('.');
  if (dot == std::string::npos || dot == 0) return {};
  std::string end = vgpu.substr(dot + 1);
  if (end.size() > kUid + 1 && end[kUid] == '-' && end.find_first_not_of("0123456789", kUid + 1) == std::string::npos)
    end.resize(kUid);
  return IsUid(end) ? end : std::string();
}

}  // namespace tessera::kubernetes
