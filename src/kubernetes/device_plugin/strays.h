#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tessera::kubernetes {

// Finds what nobody wants any more: what was there and not wanted in so many looks in a row. One look is not enough: a
// kubelet that has just begun does not know all its pods yet.
class Strays {
 public:
  static constexpr int kLooks = 3;

  // What to remove; it is named again in the next look if it is still there.
  std::vector<std::string> Look(const std::set<std::string>& there, const std::set<std::string>& wanted) {
    std::erase_if(unwanted_,
                  [&](const auto& each) { return !there.contains(each.first) || wanted.contains(each.first); });
    std::vector<std::string> strays;
    for (const std::string& name : there) {
      if (!wanted.contains(name) && ++unwanted_[name] >= kLooks) strays.push_back(name);
    }
    return strays;
  }

 private:
  std::map<std::string, int> unwanted_;  // in how many looks
};

}  // namespace tessera::kubernetes
