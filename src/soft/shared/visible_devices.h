#pragma once

#include <string>
#include <vector>

namespace tessera::soft {

// Which devices of `uuids` the text of CUDA_VISIBLE_DEVICES names, by index or beginning of a UUID, in its order. It
// ends at the first name that is not one.
std::vector<int> VisibleDevices(const char* text, const std::vector<std::string>& uuids);

}  // namespace tessera::soft
