// The line: what a program's pager and the mover say to each other over a SOCK_SEQPACKET socket of their own, one per
// program and GPU. One packet is one LineMessage, with a descriptor per chunk where its type says so. docs/protocol.md
// describes the conversation. A change here needs a new kLineVersion.
//
// The mover asks, the program answers each question with exactly one message, in order. GPU memory is always the
// program's own making, because memory that was imported cannot be exported again; host memory is the mover's, and the
// daemon keeps its descriptors for the next mover. What is in a chunk never exists in one place only that could go: a
// program keeps its GPU memory until it holds the host memory of the copy, and its host memory until the GPU memory of
// the copy is mapped. Likewise where the mover has a file: the program keeps its host memory until the mover says that
// the chunk is in the file, and the file keeps it until the program holds host memory again. What is out has a key, by
// which any mover finds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace tessera::wire {

// The unit of every move, in bytes: GPU and host memory come in pieces of this size. What a piece costs is the driver's
// work on it, 1 ms on the way from one program to another whatever its size (docs/hardware-log.md): smaller ones cannot
// go at PCIe speed both ways at once.
inline constexpr std::uint64_t kChunkBytes = 64u << 20;
inline constexpr std::uint32_t kMostChunks = 8;  // of one message: 512 MiB, which take 10 ms on the way

inline constexpr std::uint32_t kLineMagic = 0x454e494c;  // "LINE"
inline constexpr std::uint16_t kLineVersion = 3;

enum class LineType : std::uint16_t {
  // mover → program
  kEvict = 1,   // offer up to `count` chunks; no chunks are named. Answered by kOffer
  kStored = 2,  // the named chunks, which were offered, are copied; their host memory comes along (descriptors), and
                // the keys by which any mover finds it. Answered by kFreed
  kKeep = 3,    // the named chunks, which were offered, were not copied (no room): they stay. No answer
  kLoad = 4,    // make GPU memory for up to `count` chunks that should come back. Answered by kWant
  kLoaded = 5,  // the named chunks, which were wanted, are copied into their GPU memory. Answered by kTaken
  kStay = 6,    // the named chunks, which were wanted, were not copied (no room): they stay out. No answer
  kSettle = 7,  // make every address valid, by host memory where a chunk stays out. Answered by kSettled
  kFiled = 8,   // the named chunks, which were stored, are in the file as well, under these keys. Answered by kReleased
  kRead = 9,    // the named chunks, which were filed, are in this host memory (descriptors), with new keys. Answered by
                // kHeld
  kAdopted = 10,  // the answer to kAdopt: the named chunks are stored, where a key is not 0. Others stay in the host
                  // memory that the program has, and no mover will reach them. No answer
  // program → mover
  kOffer = 65,    // chunks to go, coldest first; their GPU memory comes along (descriptors). count 0: there are none
  kFreed = 66,    // the GPU memory of the named chunks is given back. error: of none of them, they stay
  kWant = 67,     // chunks to come, hottest first; the GPU memory for them comes along (descriptors). count 0: none is
                  // out, or (error) there is no memory for any
  kTaken = 68,    // the named chunks are mapped, their host memory is given back. error: of none of them, they stay out
  kSettled = 69,  // error: an address is not valid, the program must not run
  kDropped = 70,  // without a question: the program needs the named chunks no more, which were stored
  kAdopt = 71,    // without a question, first, to a new mover: the named chunks are stored in the host memory that has
                  // these keys. The last one names fewer than kMostChunks, or none: that was all. Answered by kAdopted
                  // if it names any; until then the program offers none of them
  kReleased = 72,    // the host memory of the named chunks is given back; of others of the question it is not
  kHeld = 73,        // the named chunks are stored again; others of the question stay in the file
  kAdoptFiled = 74,  // without a question, to a new mover: the named chunks are in the file, under these keys
};

struct LineMessage {
  std::uint32_t magic = kLineMagic;
  std::uint16_t version = kLineVersion;
  LineType type{};
  std::uint32_t count = 0;                // of chunks, at most kMostChunks
  std::int32_t error = 0;                 // CUresult of what failed, where the type has one
  std::uint64_t chunk[kMostChunks] = {};  // the program's names for them; the mover compares them only
  std::uint64_t key[kMostChunks] = {};    // where the type has some: the mover's names, which nobody can guess
};
static_assert(sizeof(LineMessage) == 144);

// How many descriptors come along with a message.
inline std::uint32_t DescriptorsOf(const LineMessage& message) {
  switch (message.type) {
    case LineType::kStored:
    case LineType::kWant:
    case LineType::kOffer:
    case LineType::kRead:
      return message.count;
    default:
      return 0;
  }
}

// A received packet as a message, if it is one of this version; its type and chunks are for its reader to check.
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
