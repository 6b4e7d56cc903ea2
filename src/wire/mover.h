// Protocol between the daemon and the mover of a GPU over the mover's descriptor 3, a SOCK_SEQPACKET socket: one
// packet is one MoverMessage. Both are of one build, so there is no version. When the daemon has closed its end, the
// mover ends. What programs have outlives both: wire/swap_holder.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace tessera::wire {

enum class MoverType : std::uint32_t {
  // daemon → mover
  kPool = 1,  // bytes: what the swap pool should have; other: what it may have at most. It grows in the background, as
              // quickly as it can
  kProgram =
      2,      // a program: its line comes along (descriptor). bytes: its pid; other: its domain. Host memory that was
              // given to a program of one domain is never given to one of another: a program can keep what it once
              // had
  kGone = 3,  // the program has ended, or gets another line, on which it says what it has. What it does not claim
              // comes free when the program has ended, or after a while
  kEvict =
      4,  // bring out chunks of the program that have this many more bytes of GPU memory, or a little more than that;
          // other: kEvictHoles: whole chunks with holes, those with most first; kEvictInPlace: the program is to
          // hold nothing of what goes out, as if it were parked then, and the GPU memory of whole chunks stays where it
  // is, as slots that the program holds nothing of (kSlotLeft). From now until kLoad or kSettle, what the program
  // has in host memory may go on to the file
  kLoad = 5,     // bring in chunks of the program that take this many more bytes of GPU memory at most. other: of
                 // these, what may be holes of whole chunks; kAnyHoleBytes: each chunk comes back whole
  kSettle = 6,   // make all addresses of the program valid; none of its chunks is in the file, or parked, then
  kSlot = 7,     // a slot that an earlier mover made: its memory comes along (descriptor). bytes: its number. These are
                 // the first messages, one by one; each is answered by kSlotTaken
  kPrepare = 8,  // bytes: what the pool should have when there is nothing else to do, by one thread of low priority. If
                 // that is less than kPool said, it counts instead: what is not in use beyond it is given back
  kPark =
      10,  // the program stands still, and is to hold nothing of the mover's: what it has in slots stays there without
           // it, what is in the file stays there. A move under way ends before. It holds for what is out then, until
           // kLoad or kSettle
  kLend = 11,  // the mover of another GPU is to have what the program of this pid (bytes) has parked. From now on those
               // slots are for that program only, for ever: in each pool they leave the pool when they come free.
               // Answered by kLent
  kSlotFor = 12,  // a slot that another GPU's mover has lent: its memory comes along (descriptor). bytes: its number;
                  // other: its key; program: pid of the program that has something there; domain: of that program. The
                  // program may claim it at any time. marks: of a GPU's memory as in SwapEntry, from that mover's
                  // side, else none. Answered by kSlotTaken
  kLetGo = 18,    // the mover of another GPU has the slot of this number (bytes), which was lent (kLend), or is to have
                  // it no more: it leaves the pool. Nothing happens if there is no such slot
  kFileOf = 20,   // said before kProgram: the file of that program, which an earlier mover has finished, comes along
                  // (descriptor). What the program says is away may lie in it
  kSave = 21,    // the program is parked, and its file comes along (descriptor), to be written: what it has parked goes
                 // there, and leaves its slots. bytes: when it was started, in clock ticks since boot; text: a
                 // SuspendedGpu
  kUnsave = 22,  // what the program has in its file comes back to slots, parked; then the file is emptied
  kRest = 13,    // bytes: 1: some program of the machine leaves its GPU, or comes back. From now on nothing is made or
                 // freed that no program waits for: the driver does one such thing after the other. 0: no longer
  kReach = 14,   // a slot that may come by kSlotFor soon: its memory comes along (descriptor), and is mapped meanwhile,
                 // when there is nothing else to do. program: pid of the program that it comes with; bytes: its number;
                 // marks: as there. Answered by kReached
  kReachOver = 15,  // program: pid of the program with which no slot comes soon: what was mapped and did not come is
                    // given up
  kShow = 16,  // program: a pid; bytes: the program shows so much of its GPU memory, and goes on: each whole chunk is a
               // slot from now on (kSlotLeft), which is the program's as soon as it goes by kEvictInPlace. 0: no more,
               // and what did not go is given up. Answered by kShownAll if not 0
  kRelocate =
      17,  // what the program leaves in place, or has left there, on this GPU or another one, goes on to slots of
           // host memory until kLoad, and comes free (kSlotGone). kLend and kSave wait for what is under way; kSave
           // also begins it
  kSlotKept = 9,  // the answer to kSlotMade and kSlotLeft: the slot of this number (bytes) is kept for the next mover,
  // as far as it can be. Now programs may have it. error: of kSlotLeft, why it is not kept, errno value
  // mover → daemon
  kReady = 65,   // it can move
  kPoolIs = 66,  // bytes: the size of the pool; other: the part in use; error: why it stopped growing, errno value
  kMoved = 67,  // after each batch. bytes: GPU memory that came free by moves since the mover knows the program; other:
                // GPU memory that was taken by them; copied_out, copied_in: the contents of these, without
                // holes
  kEvicted = 68,  // the program's kEvict is done. bytes: what could not be moved; error: why, errno value. ENOMEM: the
                  // pool is full; ENODATA: the program has nothing more to offer; EPIPE: its line closed; EIO: CUDA
  kLoaded = 69,   // likewise for kLoad
  kSettled = 70,  // the program's kSettle is done. error: why some address is not valid, errno value. ENOMEM: no host
                  // memory for what is in the file; EIO: the file cannot be read, or CUDA; ESTALE: the file does not
                  // have it any more; EOPNOTSUPP: the program's driver does not import this mover's host memory, so
                  // that some is parked until kLoad; EPIPE: the line closed
  kFailed = 71,   // the mover cannot work at all and ends. error: errno value; text says why
  kFileIs = 72,   // bytes: what the swap file can hold; other: what it holds; error: why nothing more is written to it,
                  // errno value
  kSlotMade = 73,  // a slot was made: its memory comes along (descriptor), for the next mover. bytes: its number, which
                   // no other slot ever has. It is of no use until kSlotKept
  kSlotGone = 74,  // the slot of this number (bytes) is gone, and its memory is free
  kSlotTaken =
      75,        // the answer to kSlot: the mover has the slot of this number (bytes), or said kSlotGone before. Or to
                 // kSlotFor; error: why it has not taken it, errno value. ENOSPC: the pool is full of what programs
                 // have there; EBUSY: the memory is there already, and in use or on its way out
  kParked = 76,  // the program's kPark is done. bytes: what the program still holds, host memory of no pool included;
                 // other: what of it lies in the file; error: why it holds something, errno value. EBUSY: it gives
                 // that up to no mover; EPIPE: its line closed, and what it holds is not known
  kLent = 77,  // the answer to kLend. bytes: the pid; other: how many slots these are; error: why there are none, errno
               // value. EBUSY: not all that the program has in slots is parked
  kSlotLeft = 78,  // GPU memory that a program is to let go of is a slot, and comes along (descriptor), for the next
                   // mover. program: pid; bytes: its number. The program keeps it until kSlotKept
  kReached = 79,   // the answer to kReach, when the memory was mapped, or could not be. bytes: the number
  kShownAll = 81,  // the answer to kShow. program: its pid; error: EPIPE: its line closed
  kClaimed = 82,   // the program of this pid (bytes) has named all that it has in slots, and all of it is here
  kSaved = 90,     // the program's kSave is done. bytes: of the file; error: why what was parked stays as it was, errno
                   // value. EBUSY: some of it is in a file already; EPIPE: its line closed
  kUnsaved = 91,  // the program's kUnsave is done. bytes: of the file before; error: why all that is in it stays there,
                  // errno value. EBADMSG: the file was changed; ENOMEM: no host memory; EPIPE: its line closed
  kSaveLeft = 92,  // during kSave or kUnsave, before each chunk. bytes: of GPU memory, at most, of what is still to go
  kNoHostMemory = 93,  // the program's driver does not import this mover's host memory. From now on it holds nothing of
                       // what goes out, and runs with all of its memory on the GPU only
  kMachineIs = 80,     // bytes: what the pool could have if it had all memory of the machine but the floor; other:
  // hundredths of a percent of the last 10 s in which some program of the machine waited for memory.
  // At the start, and when it has changed, once a second at most
};

inline constexpr std::uint64_t kAnyHoleBytes = UINT64_MAX;
inline constexpr std::uint64_t kEvictHoles = 1, kEvictInPlace = 2;

// A GPU, as the file of a suspended program names it (docs/suspended-file.md). Texts end with a 0.
struct SuspendedGpu {
  std::uint8_t uuid[16] = {};
  char name[80] = {};
  char driver[40] = {};  // its version; empty: not known
};
static_assert(sizeof(SuspendedGpu) == 136 && std::has_unique_object_representations_v<SuspendedGpu>);

struct MoverMessage {
  MoverType type{};
  std::int32_t error = 0;                       // errno value, 0 if there is none
  std::uint64_t program = 0;                    // the daemon's number for it, 0 where the message is about none
  std::uint64_t bytes = 0;                      // as the type says
  std::uint64_t other = 0;                      // as the type says
  std::uint64_t copied_out = 0, copied_in = 0;  // of kMoved, bytes
  std::uint64_t domain = 0, marks = 0;          // of kSlotFor
  char text[136] = {};                          // of kFailed, terminated; of kSave
};
static_assert(sizeof(MoverMessage) == 200 && std::has_unique_object_representations_v<MoverMessage>);
static_assert(offsetof(MoverMessage, error) == 4 && offsetof(MoverMessage, program) == 8 &&
              offsetof(MoverMessage, bytes) == 16 && offsetof(MoverMessage, other) == 24 &&
              offsetof(MoverMessage, copied_out) == 32 && offsetof(MoverMessage, domain) == 48 &&
              offsetof(MoverMessage, marks) == 56 && offsetof(MoverMessage, text) == 64);

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
