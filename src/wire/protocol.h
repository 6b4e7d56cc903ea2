// What a program (through the shim) and the daemon say to each other over client.sock, a SOCK_SEQPACKET Unix socket:
// one packet is one message, a Header followed by the body of its type. Fixed-width fields, little endian, no pointers.
// docs/protocol.md describes the conversation. A change to any struct here needs a new kProtocolVersion.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace tessera::wire {

inline constexpr std::uint32_t kProtocolMagic = 0x53534554;  // "TESS"
inline constexpr std::uint16_t kProtocolVersion = 5;
inline constexpr std::size_t kMaxMessageBytes = 8192;

enum class Type : std::uint16_t {
  // program → daemon
  kHello = 1,      // first message; answered by kWelcome or kRefused
  kAttach = 2,     // use a GPU; answered by kAttached (with the page's descriptor) or kRefused
  kReserve = 3,    // memory; answered by kReserved
  kReturn = 4,     // memory no longer needed; no answer
  kContext = 5,    // a context is about to be made (+1) or was destroyed (-1); +1 is answered by kReserved
  kWants = 6,      // work begins; no answer but the page's orders
  kIdle = 7,       // no work is left on the GPU; no answer
  kReleased = 8,   // the gate was closed by the order `epoch`, and what was queued has ended; no answer
  kQuery = 9,      // how the vGPU looks, for NVML; answered by kView or kRefused. Needs kHello, but no kAttach
  kObject = 10,    // what the process did to an object that leads to its channels; no answer. Needs kHello only
  kGuard = 11,     // first message of tessera run --enforce kernel; answered by kWelcome or kRefused
  kRoom = 13,      // GPU memory is needed that the process has no room for; answered by kRoomGranted
  kLine = 14,      // the line to the mover broke: another one; answered by kLineOpened
  kExport = 15,    // memory for other programs, with up to 16 of its descriptors; answered by kExported or kRefused
  kUnexport = 16,  // no more of it; answered by kExported
  kImport = 17,    // memory that another program exported; answered by kImported or kRefused
  kListener = 12,  // after kGuard: the descriptor that comes along is the program's seccomp listener; as kGuard
  // daemon → program
  kWelcome = 65,
  kRefused = 66,
  kAttached = 67,
  kReserved = 68,
  kView = 69,
  kRoomGranted = 70,
  kLineOpened = 71,
  kExported = 72,
  kImported = 73,
};

struct Header {
  std::uint32_t magic = kProtocolMagic;
  std::uint16_t version = kProtocolVersion;  // never moves: both sides can read the version of any other
  Type type{};
  std::uint32_t bytes = 0;  // of the body
  std::uint32_t gpu = 0;    // index of the GPU that it is about, where there is one
};

// GPU UUID as NVML and cuDeviceGetUuid give it: 16 raw bytes.
struct Uuid {
  std::uint8_t bytes[16] = {};
  bool operator==(const Uuid&) const = default;
};

struct Hello {
  static constexpr Type kType = Type::kHello;
  std::int32_t pid = 0;        // getpid() of the program, in its own PID namespace; the daemon trusts SO_PEERCRED
  std::uint32_t observer = 0;  // 1: only asks (NVML); does not count as a process of the vGPU
  char vgpus[512] = {};        // names of the vGPUs to join, comma-separated, at most one per GPU
  char program[64] = {};       // its name, for people
};

struct Welcome {
  static constexpr Type kType = Type::kWelcome;
  std::uint64_t session = 0;
  std::int64_t grace_ns = 0;        // how long last orders stand after the daemon's loss
  std::uint32_t block_on_loss = 0;  // after that: 1 waits for a daemon, 0 goes on without
  std::uint32_t reserved = 0;
};

struct Refused {
  static constexpr Type kType = Type::kRefused;
  std::int32_t code = 0;  // errno value
  std::uint32_t reserved = 0;
  char text[504] = {};  // what, why, what to do
};

struct Attach {
  static constexpr Type kType = Type::kAttach;
  Uuid gpu;
  std::uint64_t memory_bytes = 0;  // what the process already holds (after a reconnect)
  std::uint64_t room_bytes = 0;    // what of the GPU's memory it has taken room for (likewise)
  std::uint64_t unsafe_bytes = 0;  // what its kernels must not touch before a mover has been at it (likewise)
  std::uint32_t contexts = 0;      // likewise
  std::uint32_t works = 0;         // 1: it has work under way (likewise), as Wants with `waits` 0 says
};

struct Attached {
  // Header::gpu says which GPU. Descriptors: the page; where memory may be swapped, the line to the mover
  // (wire/line.h).
  static constexpr Type kType = Type::kAttached;
  std::uint64_t context_bytes = 0;  // what a context costs on this GPU
  std::uint64_t memory_total = 0;   // of the GPU
  std::uint32_t swaps = 0;          // 1: memory may be swapped, and is to be allocated so that it can be
  std::uint32_t reserved = 0;
  char vgpu[64] = {};
};

struct Reserve {
  static constexpr Type kType = Type::kReserve;
  std::uint64_t bytes = 0;
};

struct Reserved {
  static constexpr Type kType = Type::kReserved;
  std::uint64_t bytes = 0;      // what was asked for, or 0: over memory.max
  std::uint64_t available = 0;  // what the vGPU could still reserve
};

struct Return {
  static constexpr Type kType = Type::kReturn;
  std::uint64_t bytes = 0;
};

// Room for `bytes` of GPU memory. 0: none, but what Page::recalled says is to come back.
struct Room {
  static constexpr Type kType = Type::kRoom;
  std::uint64_t bytes = 0;
};

struct RoomGranted {
  static constexpr Type kType = Type::kRoomGranted;
  std::uint64_t bytes = 0;  // what was asked for, or 0
  std::uint32_t wait =
      0;  // with 0 bytes: 1 if it is being made; then it comes as credit in the page, and the bell rings
  std::uint32_t reserved = 0;
};

struct Line {
  static constexpr Type kType = Type::kLine;
};

struct LineOpened {
  static constexpr Type kType = Type::kLineOpened;  // the line comes along (descriptor)
};

// The name of exported memory: random, and whoever of the user knows it gets the memory.
struct ExportKey {
  std::uint8_t bytes[16] = {};
  auto operator<=>(const ExportKey&) const = default;
};

// Memory for others: a block in whole chunks, the descriptors of which come in order, as many with each message as fit.
struct Export {
  static constexpr Type kType = Type::kExport;
  ExportKey key;
  std::uint64_t bytes = 0;        // of the block
  std::uint64_t offset = 0;       // of it in the first chunk
  std::uint64_t chunk_bytes = 0;  // of each
  std::uint32_t chunks = 0;       // in all
  std::uint32_t first = 0;        // of those whose descriptors come along
};

struct Exported {
  static constexpr Type kType = Type::kExported;
};

struct Unexport {
  static constexpr Type kType = Type::kUnexport;
  ExportKey key;
};

struct Import {
  static constexpr Type kType = Type::kImport;
  ExportKey key;
  std::uint32_t first = 0;  // chunk whose descriptor, and of those after it, is to come along
  std::uint32_t reserved = 0;
};

struct Imported {
  // Header::gpu says which GPU it is on.
  static constexpr Type kType = Type::kImported;
  std::uint64_t bytes = 0;  // as in Export
  std::uint64_t offset = 0;
  std::uint64_t chunk_bytes = 0;
  std::uint32_t chunks = 0;
  std::uint32_t count = 0;  // descriptors that come along
};

struct Context {
  static constexpr Type kType = Type::kContext;
  std::int32_t delta = 0;  // +1 or -1
  std::uint32_t reserved = 0;
};

struct Wants {
  static constexpr Type kType = Type::kWants;
  std::uint32_t waits = 1;  // 0: the gate was free, so work is on its way to the GPU already
  std::uint32_t reserved = 0;
};

struct Idle {
  static constexpr Type kType = Type::kIdle;
  std::int64_t since = 0;  // CLOCK_MONOTONIC, nanoseconds
};

struct Released {
  static constexpr Type kType = Type::kReleased;
  std::int64_t drained_at = 0;  // CLOCK_MONOTONIC, nanoseconds
  std::uint32_t epoch = 0;      // of the order that closed the gate
  std::uint32_t reserved = 0;
};

struct Query {
  static constexpr Type kType = Type::kQuery;
  Uuid gpu;
};

// As channel::ObjectEvent, whose words these are.
struct Object {
  static constexpr Type kType = Type::kObject;
  std::uint32_t kind = 0;  // 1: made, 2: freed
  std::int32_t fd = -1;    // of /dev/nvidiactl in the process
  std::uint32_t client = 0, parent = 0, object = 0;
  std::uint32_t cls = 0;
  std::uint32_t detail = 0;
  std::uint32_t reserved = 0;
};

struct Guard {
  static constexpr Type kType = Type::kGuard;
  char vgpus[512] = {};   // as in Hello
  char program[64] = {};  // its name, for people
};

struct Listener {
  static constexpr Type kType = Type::kListener;
};

struct ProcessView {
  std::int32_t pid = 0;  // as the daemon sees it
  std::uint32_t reserved = 0;
  std::uint64_t memory_bytes = 0;
};

struct View {
  static constexpr Type kType = Type::kView;
  std::uint64_t memory_max = 0;
  std::uint64_t memory_used = 0;
  std::uint32_t compute_pct = 0;  // of the last second
  std::uint32_t processes = 0;    // filled entries below
  ProcessView process[256] = {};
};

static_assert(sizeof(Header) == 16 && sizeof(Hello) == 584 && sizeof(Welcome) == 24 && sizeof(Refused) == 512);
static_assert(sizeof(Room) == 8 && sizeof(RoomGranted) == 16);
static_assert(sizeof(Attach) == 48 && sizeof(Attached) == 88 && sizeof(Reserve) == 8 && sizeof(Reserved) == 16);
static_assert(sizeof(Return) == 8 && sizeof(Context) == 8 && sizeof(Idle) == 8 && sizeof(Wants) == 8 &&
              sizeof(Released) == 16);
static_assert(sizeof(Export) == 48 && sizeof(Unexport) == 16 && sizeof(Import) == 24 && sizeof(Imported) == 32);
static_assert(sizeof(Object) == 32 && sizeof(Guard) == 576);
static_assert(sizeof(Query) == 16 && sizeof(View) == 24 + 256 * 16);

// A message ready to send. `Body` is one of the structs above.
template <typename Body>
struct Message {
  Header header;
  Body body;
};

template <typename Body>
Message<Body> Make(const Body& body, std::uint32_t gpu = 0) {
  static_assert(std::is_trivially_copyable_v<Body>);
  Message<Body> message{.header = {}, .body = body};
  message.header.type = Body::kType;
  message.header.bytes = std::is_empty_v<Body> ? 0 : sizeof(Body);
  message.header.gpu = gpu;
  return message;
}

// The bytes of a message, to be sent as one packet.
template <typename Body>
std::span<const std::byte> BytesOf(const Message<Body>& message) {
  return {reinterpret_cast<const std::byte*>(&message), sizeof(Header) + message.header.bytes};
}

// Why a packet is no message of this version.
enum class Fault { kNone, kTooShort, kBadMagic, kOtherVersion, kWrongLength };

// Checks the frame of a received packet and copies its header out. The body's meaning is for its reader to check.
inline Fault ReadHeader(std::span<const std::byte> packet, Header& header) {
  if (packet.size() < sizeof(Header)) return Fault::kTooShort;
  std::memcpy(&header, packet.data(), sizeof header);
  if (header.magic != kProtocolMagic) return Fault::kBadMagic;
  if (header.version != kProtocolVersion) return Fault::kOtherVersion;
  return header.bytes == packet.size() - sizeof(Header) ? Fault::kNone : Fault::kWrongLength;
}

// The body of a packet whose header was read, if it is a `Body` of the right length.
template <typename Body>
std::optional<Body> ReadBody(const Header& header, std::span<const std::byte> packet) {
  constexpr std::size_t kBytes = std::is_empty_v<Body> ? 0 : sizeof(Body);
  if (header.type != Body::kType || packet.size() != sizeof(Header) + kBytes) return std::nullopt;
  Body body;
  if constexpr (kBytes > 0) std::memcpy(&body, packet.data() + sizeof(Header), kBytes);
  return body;
}

// Text in a fixed field: always terminated when written, never trusted to be when read.
template <std::size_t N>
void SetText(char (&field)[N], std::string_view text) {
  const std::size_t length = text.size() < N ? text.size() : N - 1;
  std::copy_n(text.begin(), length, field);
  std::memset(field + length, 0, N - length);
}

template <std::size_t N>
std::string_view TextOf(const char (&field)[N]) {
  return {field, strnlen(field, N)};
}

}  // namespace tessera::wire
