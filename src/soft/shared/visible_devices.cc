#include "soft/shared/visible_devices.h"

#include <algorithm>

namespace tessera::soft {

std::vector<int> VisibleDevices(const char* text, const std::vector<std::string>& uuids) {
  std::vector<int> visible;
  const int count = static_cast<int>(uuids.size());
  if (text == nullptr) {
    for (int i = 0; i < count; ++i) visible.push_back(i);
    return visible;
  }
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    int index = -1;
    if (name.starts_with("GPU-")) {
      const auto found = std::ranges::find_if(uuids, [&](const std::string& uuid) { return uuid.starts_with(name); });
      if (found != uuids.end()) index = static_cast<int>(found - uuids.begin());
    } else if (!name.empty() && name.size() < 4 && name.find_first_not_of("0123456789") == name.npos) {
      index = std::stoi(std::string(name));
    }
    // A device named twice leaves none at all, as with the real driver.
    if (std::ranges::find(visible, index) != visible.end()) return {};
    if (index < 0 || index >= count) break;
    visible.push_back(index);
  }
  return visible;
}

}  // namespace tessera::soft
