#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/clock.h"

namespace tessera::guard {

// Messages between the daemon and the gate holder (gate_holder.h), one a packet. A daemon may meet the holder of an
// earlier version of Tessera, so what is here stays: other messages get other types, and unknown ones are ignored.
enum class HolderType : std::uint32_t {
  kHello = 1,  // daemon: I am here. `number`: how long calls wait after my end, ns
  kTree = 2,   // holder: a tree; `number` is its number. With two descriptors: its listener, its record
  kAll = 3,    // holder: these were all
  kHold = 4,   // daemon: keep this tree. With two descriptors, as kTree
  kDrop = 5,   // daemon: the tree `number` has ended
};

struct HolderMessage {
  static constexpr std::uint32_t kMagic = 0x6c6f6867;
  std::uint32_t magic = kMagic;
  HolderType type = HolderType::kHello;
  std::uint64_t number = 0;
};
static_assert(sizeof(HolderMessage) == 16);

inline std::span<const std::byte> BytesOf(const HolderMessage& message) {
  return std::as_bytes(std::span(&message, 1));
}

inline std::optional<HolderMessage> ReadHolder(std::span<const std::byte> packet) {
  HolderMessage message;
  if (packet.size() != sizeof message) return {};
  std::memcpy(&message, packet.data(), sizeof message);
  if (message.magic != HolderMessage::kMagic) return {};
  return message;
}

}  // namespace tessera::guard
