// What the daemon and the mover of a GPU say to each other over the mover's descriptor 3, a SOCK_SEQPACKET socket: one
// packet is one MoverMessage. Both are of one build, so there is no version. The daemon's end closed: the mover
// keeps what programs have for the next daemon, for a while, and ends. That one may be of another build: what it gets
// then has a version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace tessera::wire {

enum class MoverType : std::uint32_t {
  // daemon → mover
  kPool = 1,     // bytes: what the swap pool should have; other: what it may have at most. Grown in the background
  kProgram = 2,  // a program: its line comes along (descriptor). bytes: its pid; other: its domain. Host memory that a
                 // program of one domain was given is never given to one of another: a program can keep what it once
                 // had
  kGone = 3,     // the program has ended, or gets another line, on which it says what it has: what it does not claim is
                 // free when it has ended, or after a while
  kEvict = 4,    // move this many bytes more of the program out (rounded up to chunks). From now on, until kLoad or
                 // kSettle, what it has in host memory may go on to the file
  kLoad = 5,     // move this many bytes more of the program in (rounded down to chunks)
  kSettle = 6,   // make all addresses of the program valid; nothing of it is in the file then
  kSlot = 7,     // a slot that an earlier mover made: its memory comes along (descriptor). bytes: its number. These are
                 // the first messages, one by one; each is answered by kSlotTaken
  // mover → daemon
  kReady = 65,     // it can move
  kPoolIs = 66,    // bytes: what the pool has; other: what of it is in use; error: why it stopped growing, errno value
  kMoved = 67,     // after each batch. bytes: moved out since the mover knows the program; other: moved in
  kEvicted = 68,   // the program's kEvict is done. bytes: what could not be moved; error: why, errno value (ENOMEM: the
                   // pool is full; ENODATA: the program has nothing more to offer; EPIPE: its line closed; EIO: CUDA)
  kLoaded = 69,    // likewise
  kSettled = 70,   // error: not all addresses are valid (ENOMEM: no host memory for what is in the file; EIO: the file
                   // cannot be read, or CUDA; ESTALE: it is in no file any more)
  kFileIs = 72,    // bytes: what the swap file holds at most; other: what it holds; error: why nothing more is written
  kSlotMade = 73,  // a slot is in the pool: its memory comes along (descriptor), for the next mover. bytes: its number,
                   // which nothing else ever has
  kSlotGone = 74,  // the slot of this number is nobody's any more
  kSlotTaken = 75,  // it has the slot of this number, or will never have it (kSlotGone came before)
  // mover → the next daemon, at the mover's socket in the run directory: these with their descriptors, the slots as
  // kSlotMade, and kAll at the end, which the daemon answers with kAll when it has them
  kSlotsTable = 76,  // the first one. other: kBequestVersion
  kFile = 77,
  kFileTable = 78,
  kAll = 79,
  kFailed = 71,  // the mover cannot work at all and ends. error: errno value; text says why
};

// Changes with these messages, and with what is in the tables, a slot or the swap file.
inline constexpr std::uint64_t kBequestVersion = 1;

// For each slot of the pool, and for each place in the swap file, the mover keeps so many bytes in memory that the
// daemon keeps.
inline constexpr std::uint64_t kTableEntryBytes = 32;

struct MoverMessage {
  MoverType type{};
  std::int32_t error = 0;
  std::uint64_t program = 0;  // the daemon's number for it
  std::uint64_t bytes = 0;
  std::uint64_t other = 0;
  char text[160] = {};  // of kFailed, terminated
};
static_assert(sizeof(MoverMessage) == 192);

inline std::optional<MoverMessage> ReadMover(std::span<const std::byte> packet) {
  MoverMessage message;
  if (packet.size() != sizeof message) return std::nullopt;
  std::memcpy(&message, packet.data(), sizeof message);
  return message;
}

inline std::span<const std::byte> BytesOf(const MoverMessage& message) {
  return {reinterpret_cast<const std::byte*>(&message), sizeof message};
}

}  // namespace tessera::wire
