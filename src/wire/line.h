// The line: what a program's pager and the mover say to each other over a SOCK_SEQPACKET socket of their own, one per
// program and GPU. One packet is one LineMessage, with a descriptor per chunk where its type says so. Little endian, no
// pointers. docs/protocol.md describes the conversation. A change here needs a new kLineVersion.
//
// The mover asks; the program answers each question with exactly one message, in order. GPU memory is always made by
// the program, because memory that was imported cannot be exported again. Host memory is made by the mover, and the
// daemon keeps its descriptors for the next mover.
//
// Host memory of a chunk is one piece. Its GPU memory is one piece of kChunkBytes (a whole chunk), or a piece for each
// run of units in which the program has something (a sparse one). Only those are copied. A chunk comes back whole as
// long as there is room for that, and sparse where its holes are to become room.
//
// A chunk always has one copy that cannot be lost. A program keeps its GPU memory until it holds the host memory of the
// copy, and its host memory until the GPU memory of the copy is mapped. Where the mover has a file, the program keeps
// its host memory until the mover says that the chunk is in the file, and the file keeps the chunk until the program
// holds host memory again. A chunk that is out has a key, by which any mover finds it.
//
// A program is parked when all that it has out is *away*: it lies in the file, or in a slot of the mover's pool of
// which the program holds nothing, under a key. It gets there by kFiled, and to a slot at once by kStoredAway. What is
// away comes back to host memory by kRead. From a slot it also comes to the GPU by kLoad, like what is in host memory:
// so a program whose driver does not import host memory can move as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "wire/units.h"

namespace tessera::wire {

// What moves together, in bytes. For a piece that goes from one program to another the driver works 0.15 ms if it has
// this size, and 0.08 ms if it has kUnitBytes (H200, driver 580.159.04, 2026-11-23): with units alone memory could not
// move at the speed of PCIe both ways at once.
inline constexpr std::uint64_t kChunkBytes = 64u << 20;
inline constexpr std::uint32_t kMostChunks = 8;  // in one message: 512 MiB, which take 10 ms to move

inline constexpr std::uint32_t kLineMagic = 0x454e494c;  // "LINE"
inline constexpr std::uint16_t kLineVersion = 7;
inline constexpr std::uint32_t kAnyHoles = UINT32_MAX;
inline constexpr std::uint64_t kAsShown = 1;

enum class LineType : std::uint16_t {
  // mover → program
  kEvict = 1,   // offer up to `count` chunks; names none. room: not 0: the round of kShow from which the mover has
                // descriptors. Answered by kOffer
  kStored = 2,  // the named chunks, which were offered, are copied to host memory, which comes along (descriptors)
                // with the keys by which any mover finds it. Answered by kFreed
  kKeep = 3,    // the named chunks, which were offered, were not copied, and stay on the GPU. No answer
  kLoad = 4,    // make GPU memory, of `room` units at most, for up to `count` chunks that should come back, from host
                // memory or from slots where they are away. `holes` of these units may be holes of whole chunks;
                // kAnyHoles: all chunks come back whole, but those that were squeezed. Answered by kWant
  kLoaded = 5,  // the named chunks, which were wanted, are copied into their GPU memory. Answered by kTaken
  kStay = 6,    // the named chunks, which were wanted, were not copied, and stay out. No answer
  kSettle = 7,  // make every address valid: map the host memory of chunks that are out. Answered by kSettled
  kFiled = 8,   // the mover has the named chunks, which are in host memory, under these keys: in the file as well, or,
                // with the keys that they have, in that host memory itself. Answered by kReleased
  kRead = 9,  // the named chunks, which are away, are in this host memory (descriptors), under these keys. Answered by
              // kHeld
  kAdopted =
      10,  // the answer to kAdopt: the mover has the named chunks whose key is not 0. The others stay in the host
           // memory that the program has, and no mover can move them any more. No answer
  kSqueeze = 11,     // as kEvict, of whole chunks with holes, those with most first. They come back before any other
  kPark = 12,        // say how many chunks are in host memory still, of whatever mover. Answered by kParked
  kStoredAway = 13,  // as kStored, without the host memory: the mover keeps it in slots, and the chunks are away.
                     // Answered by kFreed
  kReadAway = 14,    // the named chunks, which are away in the file, are in slots now, under these keys, and stay away.
                     // Answered by kHeld
  kShow =
      15,  // show up to `count` whole chunks that may go and have not been shown in this round (`room`, not 0): they
           // stay as they are, and the mover has their descriptors when they go. Answered by kShown
  // program → mover
  kOffer = 65,    // chunks that may go, coldest first, and the units of them that are to be copied; their GPU memory
                  // comes along (descriptors), but of those whose key is kAsShown: what was shown in the round that was
                  // asked for is their memory still. count 0: none may
  kFreed = 66,    // the GPU memory of the named chunks is given back. error: of none of them, they stay on the GPU
  kWant = 67,     // chunks to come, hottest first, and the units of them; the GPU memory for those comes along
                  // (descriptors). count 0: none is out, none is small enough or, with an error, there is no GPU
                  // memory for any
  kTaken = 68,    // the named chunks are mapped, their host memory is given back. error: of none of them, they stay out
  kSettled = 69,  // error: some address is not valid, and the program must not run
  kDropped = 70,  // unasked: the named chunks, which were out, are freed
  kAdopt = 71,    // unasked, first, to a new mover: the named chunks are out, in the host memory that has these keys.
                  // The last such message names fewer than kMostChunks, or none, and says that the mover was shown all:
                  // what the program left and did not name is free. Answered by kAdopted if it names any; the program
                  // offers none of them before that
  kReleased = 72,    // the host memory of the named chunks is given back; other chunks of the question keep theirs
  kHeld = 73,        // the named chunks are in host memory again, or, after kReadAway, known to be in slots; other
                     // chunks of the question stay away as they were. error: why, of one of these
  kAdoptFiled = 74,  // unasked, to a new mover, before the last kAdopt: the named chunks are away, under these keys
  kShown = 76,       // the GPU memory of the named chunks (descriptors). count 0: there are no more
  kParked = 75,      // room: how many chunks are in host memory, mapped or not. None: the program holds nothing of any
                     // mover's
};

struct LineMessage {
  std::uint32_t magic = kLineMagic;
  std::uint16_t version = kLineVersion;
  LineType type{};
  std::uint32_t count = 0;  // of chunks, at most kMostChunks
  std::int32_t error = 0;   // CUresult of what failed in the program, 0 if nothing did; 0 from the mover
  std::uint32_t room = 0;   // of kLoad: units, in all chunks; of kParked: chunks; of kEvict and kShow: a round; else 0
  std::uint32_t holes = 0;  // likewise, and part of `room`, or kAnyHoles
  std::uint64_t chunk[kMostChunks] = {};  // the program's names (its addresses); the mover only compares them
  std::uint64_t key[kMostChunks] = {};    // the mover's names of the contents, 64 random bits each; of kOffer: 0 or
                                          // kAsShown; 0 where the type has none
  Units units[kMostChunks] = {};          // of kOffer and kWant: what is to be copied of each chunk; not 0
  Units begins[kMostChunks] = {};         // likewise: where a piece of its GPU memory begins; 0: it is whole, one piece
};
static_assert(sizeof(LineMessage) == 216 && std::has_unique_object_representations_v<LineMessage>);
static_assert(offsetof(LineMessage, version) == 4 && offsetof(LineMessage, type) == 6 &&
              offsetof(LineMessage, count) == 8 && offsetof(LineMessage, error) == 12 &&
              offsetof(LineMessage, room) == 16 && offsetof(LineMessage, holes) == 20 &&
              offsetof(LineMessage, chunk) == 24 && offsetof(LineMessage, key) == 88 &&
              offsetof(LineMessage, units) == 152 && offsetof(LineMessage, begins) == 184);

inline bool IsWhole(const LineMessage& message, std::uint32_t n) { return message.begins[n] == 0; }
// Pieces of GPU memory of chunk n of a kOffer or kWant.
inline std::uint32_t PiecesOf(const LineMessage& message, std::uint32_t n) {
  return IsWhole(message, n) ? 1 : CountOf(message.begins[n]);
}
// Units that its GPU memory takes.
inline std::uint32_t TakenBy(const LineMessage& message, std::uint32_t n) {
  return IsWhole(message, n) ? kUnitsPerChunk : CountOf(message.units[n]);
}

// Chunk n of a kOffer was shown before, and its memory does not come along.
inline bool IsAsShown(const LineMessage& message, std::uint32_t n) {
  return message.type == LineType::kOffer && message.key[n] == kAsShown;
}

// How many descriptors come along with a message.
inline std::uint32_t DescriptorsOf(const LineMessage& message) {
  switch (message.type) {
    case LineType::kStored:
    case LineType::kRead:
    case LineType::kShown:
      return message.count;
    case LineType::kWant:
    case LineType::kOffer: {
      std::uint32_t sum = 0;
      for (std::uint32_t n = 0; n < message.count; ++n) sum += IsAsShown(message, n) ? 0 : PiecesOf(message, n);
      return sum;
    }
    default:
      return 0;
  }
}

// A received packet as a message, if it is one of this version. Its type and its chunks are for the reader to check.
inline std::optional<LineMessage> ReadLine(std::span<const std::byte> packet) {
  LineMessage message;
  if (packet.size() != sizeof message) return std::nullopt;
  std::memcpy(&message, packet.data(), sizeof message);
  if (message.magic != kLineMagic || message.version != kLineVersion || message.count > kMostChunks)
    return std::nullopt;
  return message;
}

inline std::span<const std::byte> BytesOf(const LineMessage& message) {
  return {reinterpret_cast<const std::byte*>(&message), sizeof message};
}

}  // namespace tessera::wire
