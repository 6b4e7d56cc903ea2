// Protocol between a program (through the shim) and the daemon over client.sock, a SOCK_SEQPACKET Unix socket:
// one packet is one message, a Header followed by the body of its type. Fixed-width fields, little endian, no pointers.
// docs/protocol.md describes the conversation. A change to any struct here needs a new kProtocolVersion.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace tessera::wire {

inline constexpr std::uint32_t kProtocolMagic = 0x53534554;  // "TESS"
inline constexpr std::uint16_t kProtocolVersion = 20;
inline constexpr std::size_t kMaxMessageBytes = 8192;

enum class Type : std::uint16_t {
  // program → daemon
  kHello = 1,     // first message: names the vGPUs to join. Answered by kWelcome or kRefused
  kAttach = 2,    // use a GPU. Answered by kAttached (with the page's descriptor) or kRefused
  kReserve = 3,   // reserve memory. Answered by kReserved
  kReturn = 4,    // give back reserved memory. No answer
  kContext = 5,   // a context is about to be made (+1) or was destroyed (-1). +1 is answered by kReserved
  kWants = 6,     // work begins. No answer but the page's orders
  kIdle = 7,      // no work is left on the GPU. No answer
  kReleased = 8,  // the order `epoch` closed the gate, and the queued work has ended. No answer
  kQuery = 9,     // ask for the vGPU's memory and processes, for NVML. Answered by kView or kRefused. Needs kHello only
  kObject = 10,   // an object that leads to the process's channels was made or freed. No answer. Needs kHello only
  kGuard = 11,    // first message of tessera run --enforce kernel. Answered by kWelcome or kRefused
  kListener = 12,  // after kGuard: the program's seccomp listener comes along (descriptor). Answered as kGuard
  kRoom = 13,      // GPU memory is needed beyond the room that the process has. Answered by kRoomGranted
  kLine = 14,      // the line to the mover broke: open another. Answered by kLineOpened or kRefused
  kExport = 15,    // memory that other programs may map, with up to 16 descriptors. Answered by kExported or kRefused
  kUnexport = 16,  // end an export. Answered by kExported
  kImport = 17,    // get memory that another program exported. Answered by kImported or kRefused
  kUnknown = 18,   // the program asked the driver for a function that the shim does not know. No answer. Needs kHello
  kBlank = 19,     // a mapping is about to be made whose chunks hold little. Answered by kReserved
  kCalled = 20,    // the program is away, and has called the driver (Page::first_call). No answer
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
  std::uint16_t version = kProtocolVersion;  // never moves: each side can read the version of any other
  Type type{};
  std::uint32_t bytes = 0;  // of the body
  std::uint32_t gpu = 0;    // index of the GPU that the message is about; 0 where it is about none
};

// GPU UUID as NVML and cuDeviceGetUuid give it: 16 raw bytes.
struct Uuid {
  std::uint8_t bytes[16] = {};
  bool operator==(const Uuid&) const = default;
};

struct Hello {
  static constexpr Type kType = Type::kHello;
  std::int32_t pid = 0;        // getpid() in the program's PID namespace, to be shown; the daemon trusts SO_PEERCRED
  std::uint32_t observer = 0;  // 1: the program only sends queries (NVML), and is no process of the vGPU
  char vgpus[512] = {};        // names of the vGPUs to join, comma-separated, at most one per GPU
  char program[64] = {};       // the program's name, to be shown
};

struct Welcome {
  static constexpr Type kType = Type::kWelcome;
  std::uint64_t session = 0;        // the daemon's number for this connection
  std::int64_t grace_ns = 0;        // how long the last orders hold after the daemon is lost
  std::uint32_t block_on_loss = 0;  // after that: 1: the gate closes until a daemon is back; 0: it is open
  // In a space the program must be a client of the MPS server of this directory (CUDA_MPS_PIPE_DIRECTORY), with these
  // SMs at most, in hundredths of a percent (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE).
  std::uint32_t sm_limit = 0;
  char space[64] = {};  // its name; empty: none
  char mps_pipes[128] = {};
  // 1: these SMs are its own. They begin at `sm_from` hundredths of a percent of all; no percentage is set.
  std::uint32_t sm_reserved = 0;
  std::uint32_t sm_from = 0;
};

struct Refused {
  static constexpr Type kType = Type::kRefused;
  std::int32_t code = 0;  // errno value
  std::uint32_t reserved = 0;
  char text[504] = {};  // what is refused, why, and what to do
};

struct Attach {
  static constexpr Type kType = Type::kAttach;
  Uuid gpu;
  // Memory that the process has already when it reconnects; 0 the first time. Claims, which the daemon clips.
  std::uint64_t memory_bytes = 0;  // memory reserved
  std::uint64_t room_bytes = 0;    // room taken
  std::uint64_t unsafe_bytes = 0;  // memory that its kernels must not touch before a mover has settled it
  std::uint32_t contexts = 0;
  std::uint32_t works = 0;  // 1: it has work under way, as Wants with `waits` 0 says
  std::uint32_t away = 0;   // as Page::away of the last daemon said
  std::uint32_t reserved = 0;
  char vgpu[64] = {};  // as Attached of the last daemon said; empty the first time
};

struct Attached {
  // Header::gpu says which GPU. Descriptors that come along: the page and, where memory may be swapped, the line to the
  // mover (wire/line.h).
  static constexpr Type kType = Type::kAttached;
  std::uint64_t context_bytes = 0;  // memory of a context on this GPU, as far as the daemon knows
  std::uint64_t memory_total = 0;   // of the GPU, bytes
  std::uint32_t swaps = 0;          // 1: memory may be swapped; the program is to allocate it so that it can move
  std::uint32_t reserved = 0;
  char vgpu[64] = {};  // name of the vGPU that the process is in
};

struct Reserve {
  static constexpr Type kType = Type::kReserve;
  std::uint64_t bytes = 0;
};

struct Reserved {
  static constexpr Type kType = Type::kReserved;
  std::uint64_t bytes = 0;      // all that was asked for, or 0 if that cannot be had
  std::uint64_t available = 0;  // bytes that the vGPU could still reserve
  // With 0 bytes, to Context and Blank only. 1: room for the context is being made; Page::doorbell rings when it is
  // worth asking again. To Blank: another program plans something, too; ask once more, after a moment. 0: it cannot be
  // had.
  std::uint32_t wait = 0;
  std::uint32_t reserved = 0;
};

// The page counts these bytes already (Page::blank_planned), and goes on only if the answer says so.
struct Blank {
  static constexpr Type kType = Type::kBlank;
  std::uint64_t bytes = 0;  // of host memory, that would hold nothing
};

struct Return {
  static constexpr Type kType = Type::kReturn;
  std::uint64_t bytes = 0;
};

// Asks for room for `bytes` of GPU memory. 0: for none, but Page::recalled bytes are to come back.
struct Room {
  static constexpr Type kType = Type::kRoom;
  std::uint64_t bytes = 0;
  std::uint32_t pins = 0;  // 1: what it makes there cannot be moved
  std::uint32_t reserved = 0;
};

struct RoomGranted {
  static constexpr Type kType = Type::kRoomGranted;
  std::uint64_t bytes = 0;  // all that was asked for, or 0
  // With 0 bytes. 1: room is being made; it comes as Page::room_credit, and Page::doorbell rings. 0: there never will
  // be so much.
  std::uint32_t wait = 0;
  std::uint32_t reserved = 0;
};

struct Line {
  static constexpr Type kType = Type::kLine;
};

struct LineOpened {
  static constexpr Type kType = Type::kLineOpened;  // the line comes along (descriptor)
};

// The name of exported memory, 128 random bits. A program of the same user that knows it gets the memory.
struct ExportKey {
  std::uint8_t bytes[16] = {};
  auto operator<=>(const ExportKey&) const = default;
};

// Memory for other programs: a block in pieces, whole chunks or parts of sparse ones (wire/units.h), one behind the
// other. Their descriptors come in order, kMostExported with each message. Who maps a piece finds out how large
// it is.
inline constexpr std::size_t kMostExported = 16;
struct Export {
  static constexpr Type kType = Type::kExport;
  ExportKey key;
  std::uint64_t bytes = 0;        // of the block
  std::uint64_t offset = 0;       // of the block in the first piece
  std::uint64_t chunk_bytes = 0;  // of a whole chunk
  std::uint32_t chunks = 0;       // pieces in all
  std::uint32_t first = 0;        // index of the first chunk whose descriptor comes along
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
  std::uint32_t first = 0;  // index of the first chunk whose descriptor is to come along, with those of later ones
  std::uint32_t reserved = 0;
};

struct Imported {
  static constexpr Type kType = Type::kImported;
  Uuid gpu;                 // that the memory is on
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
  std::uint32_t waits = 1;  // 1: a submission waits for an order. 0: the gate was free, and work is on its way already
  std::uint32_t reserved = 0;
};

struct Called {
  static constexpr Type kType = Type::kCalled;
};

struct Idle {
  static constexpr Type kType = Type::kIdle;
  std::int64_t since = 0;  // when the last work ended; CLOCK_MONOTONIC, nanoseconds
};

struct Released {
  static constexpr Type kType = Type::kReleased;
  std::int64_t drained_at = 0;  // when the last queued work ended; CLOCK_MONOTONIC, nanoseconds
  std::uint32_t epoch = 0;      // of the order that closed the gate
  std::uint32_t reserved = 0;
};

struct Query {
  static constexpr Type kType = Type::kQuery;
  Uuid gpu;
};

// An RM object that was made or freed; fields as in channel::ObjectEvent.
struct Object {
  static constexpr Type kType = Type::kObject;
  std::uint32_t kind = 0;                            // 1: made, 2: freed
  std::int32_t fd = -1;                              // of /dev/nvidiactl in the process
  std::uint32_t client = 0, parent = 0, object = 0;  // handles (NvHandle)
  std::uint32_t cls = 0;                             // class of the object, as in NVIDIA's class/cl*.h
  std::uint32_t detail = 0;                          // as the class has it: see channel::ObjectEvent
  std::uint32_t reserved = 0;
};

struct Unknown {
  static constexpr Type kType = Type::kUnknown;
  char function[64] = {};  // its name
};

struct Guard {
  static constexpr Type kType = Type::kGuard;
  char vgpus[512] = {};   // as in Hello
  char program[64] = {};  // the program's name, to be shown
};

struct Listener {
  static constexpr Type kType = Type::kListener;
};

struct ProcessView {
  std::int32_t pid = 0;  // in the daemon's PID namespace
  std::uint32_t reserved = 0;
  std::uint64_t memory_bytes = 0;
};

struct View {
  static constexpr Type kType = Type::kView;
  std::uint64_t memory_max = 0;   // of the vGPU, bytes
  std::uint64_t memory_used = 0;  // of the vGPU, bytes
  std::uint32_t compute_pct = 0;  // the vGPU's part of the GPU's time in the last second
  std::uint32_t processes = 0;    // entries of `process` that are filled
  ProcessView process[256] = {};
};

// A struct that crosses between builds has a fixed size, and no bytes that no field writes.
template <typename Body, std::size_t kBytes>
inline constexpr bool kIsFixed =
    sizeof(Body) == kBytes && std::is_trivially_copyable_v<Body> && std::has_unique_object_representations_v<Body>;

static_assert(kIsFixed<Header, 16> && offsetof(Header, version) == 4 && offsetof(Header, type) == 6 &&
              offsetof(Header, bytes) == 8 && offsetof(Header, gpu) == 12);
static_assert(kIsFixed<Hello, 584> && offsetof(Hello, vgpus) == 8 && offsetof(Hello, program) == 520);
static_assert(kIsFixed<Welcome, 224> && offsetof(Welcome, grace_ns) == 8 && offsetof(Welcome, block_on_loss) == 16 &&
              offsetof(Welcome, sm_limit) == 20 && offsetof(Welcome, space) == 24 &&
              offsetof(Welcome, mps_pipes) == 88 && offsetof(Welcome, sm_reserved) == 216 &&
              offsetof(Welcome, sm_from) == 220);
static_assert(kIsFixed<Refused, 512> && offsetof(Refused, text) == 8);
static_assert(kIsFixed<Attach, 120> && offsetof(Attach, memory_bytes) == 16 && offsetof(Attach, room_bytes) == 24 &&
              offsetof(Attach, unsafe_bytes) == 32 && offsetof(Attach, contexts) == 40 &&
              offsetof(Attach, works) == 44 && offsetof(Attach, away) == 48 && offsetof(Attach, vgpu) == 56);
static_assert(kIsFixed<Attached, 88> && offsetof(Attached, memory_total) == 8 && offsetof(Attached, swaps) == 16 &&
              offsetof(Attached, vgpu) == 24);
static_assert(kIsFixed<Reserve, 8> && kIsFixed<Reserved, 24> && offsetof(Reserved, available) == 8 &&
              offsetof(Reserved, wait) == 16);
static_assert(kIsFixed<Return, 8> && kIsFixed<Blank, 8> && kIsFixed<Context, 8>);
static_assert(kIsFixed<Room, 16> && offsetof(Room, pins) == 8 && kIsFixed<RoomGranted, 16> &&
              offsetof(RoomGranted, wait) == 8);
static_assert(kIsFixed<Export, 48> && offsetof(Export, bytes) == 16 && offsetof(Export, offset) == 24 &&
              offsetof(Export, chunk_bytes) == 32 && offsetof(Export, chunks) == 40 && offsetof(Export, first) == 44);
static_assert(kIsFixed<Unexport, 16> && kIsFixed<Import, 24> && offsetof(Import, first) == 16);
static_assert(kIsFixed<Imported, 48> && offsetof(Imported, bytes) == 16 && offsetof(Imported, offset) == 24 &&
              offsetof(Imported, chunk_bytes) == 32 && offsetof(Imported, chunks) == 40 &&
              offsetof(Imported, count) == 44);
static_assert(kIsFixed<Wants, 8> && kIsFixed<Idle, 8> && kIsFixed<Released, 16> && offsetof(Released, epoch) == 8);
static_assert(kIsFixed<Object, 32> && offsetof(Object, fd) == 4 && offsetof(Object, client) == 8 &&
              offsetof(Object, parent) == 12 && offsetof(Object, object) == 16 && offsetof(Object, cls) == 20 &&
              offsetof(Object, detail) == 24);
static_assert(kIsFixed<Guard, 576> && offsetof(Guard, program) == 512);
static_assert(kIsFixed<Query, 16> && kIsFixed<ProcessView, 16> && offsetof(ProcessView, memory_bytes) == 8);
static_assert(kIsFixed<View, 24 + 256 * sizeof(ProcessView)> && offsetof(View, compute_pct) == 16 &&
              offsetof(View, process) == 24);

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

// The fault of a packet's header.
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

// Text in a fixed field. It is always terminated when written, and not trusted to be when read.
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
