#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "mover/program/copier.h"
#include "mover/program/disk.h"
#include "mover/program/packet_socket.h"
#include "mover/program/stored_chunks.h"
#include "wire/line.h"
#include "wire/mover.h"

namespace tessera::mover {

// So long a program that lives may claim what it has in the pool, after its line or its mover has ended. It asks for
// another line each second.
inline constexpr Nanos kClaimTime = 10 * kSecond;
// So long a program may take for an answer, which a thread of its own gives after some driver calls. One that was
// stopped meanwhile asks for another line when it goes on.
inline constexpr Nanos kPatience = 10 * kSecond;
// Chunks that it is asked for at a time. What goes out makes room 11 ms after the order with two, and 41 ms with eight
// (docs/hardware-log.md, 2026-11-22).
inline constexpr std::uint64_t kAtATime = 2;
// What a program may have in host memory of no pool, in chunks: 2 TiB. No end of it would be no end of answers.
inline constexpr std::uint64_t kMostOrphans = 1u << 16;

// What all programs of a mover share.
struct Workplace {
  Gpu& gpu;
  Pool& pool;
  Copier& copier;
  int epoll;
  std::function<void(const wire::MoverMessage&)> tell;  // the daemon
  Nanos patience = kPatience;                           // with programs
  std::optional<Error> broken = {};                     // the GPU is of no use any more

  // The second tier of the pool, where there is one.
  SwapFile* file = nullptr;
  Disk* disk = nullptr;
  std::optional<Error> file_full = {};  // nothing more is written to it
  std::uint64_t stored = 0;             // chunks so far: tells which was stored first

  // The last slot is for what comes back, or nothing ever might: what is in the file passes through a slot.
  std::uint64_t Reserve() const { return file != nullptr ? 1 : 0; }
  // Slots that a program of `domain` may take to keep.
  std::uint64_t FreeFor(Domain domain) const {
    const std::uint64_t free = pool.FreeSlots();
    return std::min(pool.FreeFor(domain), free - std::min(free, Reserve()));
  }
};

// One program: the conversation on its line, what of it is under way, and the host memory that it has. It is not
// trusted: what it must not say closes its line. Lives until the copies of its memory have ended, which may be after
// the mover forgot it.
class Program : public std::enable_shared_from_this<Program> {
 public:
  Program(Workplace& place, std::uint64_t id, pid_t pid, Domain domain, UniqueFd line);

  int fd() const { return line_.fd(); }
  Domain domain() const { return domain_; }

  // The daemon's wishes.
  void Move(Direction direction, std::uint64_t chunks);
  void Settle();
  void Gone();

  // What epoll says of the line.
  void OnReadable();
  void OnWritable();

  void OnCopied(const std::shared_ptr<Batch>& batch);
  void OnDisk(const std::shared_ptr<FileMove>& move, const Result<void>& result);

  // Of what it has in slots and may have in the file: which was stored first, as Workplace::stored counts.
  std::optional<std::uint64_t> Oldest() const;
  // Has that brought to the file. False: the file has no place.
  bool FileOldest();
  std::uint64_t Filing() const;                         // chunks on their way to the file, that others may wait for
  bool Storing() const;                                 // anything is on its way to a slot, likewise
  bool IsAsked() const { return asked_at_ != kNever; }  // it has to answer

  // Asks the program for as much as there is room for, and ends moves that are done.
  void GoOn();
  // Chunks for which it needs slots that it does not have.
  std::uint64_t Demand() const;
  // There will be no more free slots than there are.
  void Starve();

 private:
  struct Packet {
    wire::LineMessage message;
    std::vector<UniqueFd> fds;
  };
  // What the program has to answer, in order.
  struct Question {
    wire::LineType type{};
    std::uint32_t asked = 0;         // kEvict and kLoad: chunks
    std::shared_ptr<Batch> batch;    // kStored and kLoaded
    std::shared_ptr<FileMove> move;  // kFiled and kRead
  };
  using Tier = Stored::Tier;
  // A kEvict or kLoad of the daemon.
  struct Task {
    bool pending = false;
    std::uint64_t left = 0;  // chunks that the program was not asked for
    int error = 0;           // why nobody is asked for more
  };

  // program_answers.cc: an error is the program's fault, and the end of its line.
  Result<void> OnPacket(Packet packet);
  Result<void> OnOffer(Packet& packet);
  Result<void> OnWant(Packet& packet);
  Result<void> OnFreed(const wire::LineMessage& message);
  Result<void> OnTaken(const wire::LineMessage& message);
  Result<void> OnSettled(const wire::LineMessage& message);
  Result<void> OnDropped(const wire::LineMessage& message);
  Result<void> OnAdopt(const wire::LineMessage& message);
  Result<void> OnReleased(const wire::LineMessage& message);
  Result<void> OnHeld(const wire::LineMessage& message);
  Result<void> OnAdoptFiled(const wire::LineMessage& message);
  void Expect(Question question);
  Result<Question> Answered(wire::LineType question);
  Result<void> AnsweredAsk(wire::LineType question, std::uint32_t count);
  Batch::Entry* UnderWay(Direction direction, std::uint64_t chunk);

  Task& TaskOf(Direction direction) { return tasks_[static_cast<int>(direction)]; }
  std::uint64_t Asked() const;  // chunks of unanswered kEvict and kLoad
  void Ask(Direction direction, std::uint32_t count);
  void Finish(Direction direction, std::uint64_t left, int error);
  void Start(std::shared_ptr<Batch> batch);
  void Forget(std::shared_ptr<Batch> batch);
  void GiveStored(const std::shared_ptr<Batch>& batch);
  void GiveLoaded(const std::shared_ptr<Batch>& batch);
  void Send(const wire::LineMessage& message, std::span<const int> fds = {});
  void Say(wire::LineType type, std::span<const std::uint64_t> chunks, std::span<const int> fds = {});
  void Refuse(wire::LineType type, Direction direction, std::span<const std::uint64_t> chunks, int error);
  void TellMoved();
  void TellSettled(int error);
  void Store(std::uint64_t chunk, Slot slot);

  // program_file.cc
  bool Filed() const;  // anything of it is in the file, or on its way to or from there
  std::uint64_t ToRead() const;
  void ReadSome();
  void GoOnSettling();
  void StarveReading();
  void StartDisk(Stored& stored, const std::shared_ptr<FileMove>& move);
  void OnDiskForNobody(FileMove& move);
  void SayFiled(const std::shared_ptr<FileMove>& move);
  void SayRead(const std::shared_ptr<FileMove>& move);
  void LeaveFile();
  // The chunk that a move to or from the file was about, when that is over. None if it was dropped meanwhile.
  Stored* EndOf(const FileMove& move);

  void EndLine();
  // Whether it has had the question that comes next for longer than this.
  bool SilentFor(Nanos most) const { return IsAsked() && MonotonicNow() - asked_at_ > most; }
  // Others wait no longer for what it may do.
  bool Silent() const { return SilentFor(place_.patience / 10); }
  void OnCopiedForNobody(Batch& batch);
  void Release();

  Workplace& place_;
  const std::uint64_t id_;
  const pid_t pid_;
  const Domain domain_;
  PacketSocket line_;
  bool line_broke_ = false;  // found out while sending: it ends at the next turn
  bool claimed_ = false;     // it has said which chunks are in the pool
  bool gone_ = false;
  std::deque<Question> questions_;
  Nanos asked_at_ = kNever;                      // since when it has the first of them before it
  std::vector<std::shared_ptr<Batch>> batches_;  // copied now, or to be answered
  std::size_t copying_ = 0;                      // of batches_
  StoredChunks stored_;
  std::uint64_t lost_ = 0;           // chunks that it says are in a file, where there is no such place
  std::vector<Slot> held_;           // that it may hold without a name, as its line has ended
  Task tasks_[2];                    // by Direction
  std::optional<Direction> active_;  // the one that is under way: one at a time
  std::uint64_t moved_[2] = {};      // chunks by Direction
  bool rests_ = false;               // it does not run, and nobody said that it is about to
  bool settling_ = false;            // what is in the file comes back, and then it is to be settled
  std::uint64_t orphans_ = 0;        // chunks that it has in host memory of no pool
  int file_error_ = 0;               // why something did not come back
  std::size_t on_disk_ = 0;          // moves that the disk works at
};

}  // namespace tessera::mover
