// Protocol between the daemon and the swap holder of a GPU (mover/holder/swap_holder.h) over a SOCK_SEQPACKET socket:
// one packet is one SwapHolderMessage, with one descriptor where that is said. A daemon may meet the holder of an
// earlier version of Tessera, so what is here stays: other messages get other types, and unknown ones are ignored. What
// the held descriptors contain has a version (kHandoverVersion).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace tessera::wire {

// Changes with what is in the tables, in a slot or in the swap file. A daemon takes nothing of another version.
inline constexpr std::uint64_t kHandoverVersion = 2;

enum class SwapHolderType : std::uint32_t {
  // daemon → holder; the last six of these also holder → daemon, in answer to kGive
  kGive = 1,        // I am the next daemon: give me all that you hold
  kSlotGone = 2,    // drop the slot `number`
  kSlotsTable = 3,  // hold this table of the pool's slots, in place of an earlier one. `number`: kHandoverVersion.
  // Descriptor: the table. In an answer it is always the first one; without a descriptor: there is none
  kFile = 4,       // likewise the swap file
  kFileTable = 5,  // and its table
  kSlot = 6,       // the memory of the slot `number`. Descriptor: the memory
  kMover = 7,      // the mover that uses all this. Descriptor: a pidfd
  kAll = 8,        // these were all
};

struct SwapHolderMessage {
  static constexpr std::uint32_t kMagic = 0x6c687773;
  std::uint32_t magic = kMagic;
  SwapHolderType type{};
  std::uint64_t number = 0;  // as the type says
};
static_assert(sizeof(SwapHolderMessage) == 16 && std::has_unique_object_representations_v<SwapHolderMessage>);
static_assert(offsetof(SwapHolderMessage, type) == 4 && offsetof(SwapHolderMessage, number) == 8);

inline std::optional<SwapHolderMessage> ReadSwapHolder(std::span<const std::byte> packet) {
  SwapHolderMessage message;
  if (packet.size() != sizeof message) return std::nullopt;
  std::memcpy(&message, packet.data(), sizeof message);
  if (message.magic != SwapHolderMessage::kMagic) return std::nullopt;
  return message;
}

inline std::span<const std::byte> BytesOf(const SwapHolderMessage& message) {
  return std::as_bytes(std::span(&message, 1));
}

}  // namespace tessera::wire
