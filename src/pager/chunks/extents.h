#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tessera::pager {

// The free parts of a range of addresses. Not thread-safe.
class Extents {
 public:
  using Map = std::map<std::uint64_t, std::uint64_t>;  // begin, bytes; no two touch

  Extents() = default;  // nothing is free
  Extents(std::uint64_t begin, std::uint64_t bytes) : free_{{begin, bytes}} {}

  const Map& Free() const { return free_; }
  // Whether all of a range is free.
  bool Has(std::uint64_t begin, std::uint64_t bytes) const;
  // Takes a range that is free.
  void Take(std::uint64_t begin, std::uint64_t bytes);
  // Gives a range back that was taken.
  void Give(std::uint64_t begin, std::uint64_t bytes);

 private:
  Map free_;
};

}  // namespace tessera::pager
