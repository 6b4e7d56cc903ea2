#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "mover/baton.h"
#include "mover/copier.h"
#include "mover/packet_socket.h"
#include "wire/line.h"
#include "wire/mover.h"

namespace tessera::mover {

// What all programs of a mover share.
struct Workplace {
  Gpu& gpu;
  Pool& pool;
  Copier& copier;
  int epoll;
  std::function<void(const wire::MoverMessage&)> tell;  // the daemon
  Baton baton = {};
  std::uint64_t adopted = 0;    // slots that were made by an earlier mover
  std::optional<Error> broken;  // the GPU is of no use any more
};

// One program: the conversation on its line, what of it is under way, and the host memory that it has. It is not
// trusted: what it must not say closes its line. Lives until the copies of its memory have ended, which may be after
// the mover forgot it.
class Program : public std::enable_shared_from_this<Program> {
 public:
  Program(Workplace& place, std::uint64_t id, Domain domain, UniqueFd line);

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

  // Tells the program what was copied, as far as it may be asked now.
  void GiveCopied();
  // Asks the program for as much as there is room for and as may be asked now, and ends moves that are done.
  void GoOn();
  // What is copied now in the direction that it moves in; none if it does not move.
  std::optional<Direction> Moving() const { return active_; }
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
    std::uint32_t asked = 0;       // kEvict and kLoad: chunks
    std::shared_ptr<Batch> batch;  // kStored and kLoaded
  };
  struct Stored {
    Slot slot = 0;
    bool loading = false;
  };
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
  Result<void> OnAdopt(Packet& packet);
  Result<Question> Answered(wire::LineType question);
  Result<void> AnsweredAsk(wire::LineType question, std::uint32_t count);
  Batch::Entry* UnderWay(Direction direction, std::uint64_t chunk);

  Task& TaskOf(Direction direction) { return tasks_[static_cast<int>(direction)]; }
  std::uint64_t Asked() const;  // chunks of unanswered kEvict and kLoad
  bool MayAsk() const;
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

  void HangUp();
  void EndLine();
  bool PeerHungUp() const;
  void OnCopiedForNobody(Batch& batch);
  void ReleaseAll();

  Workplace& place_;
  const std::uint64_t id_;
  const Domain domain_;
  PacketSocket line_;
  bool line_broke_ = false;  // found out while sending: it ends at the next turn
  bool hung_up_ = false;     // it closed its end, as the process did that ended
  bool gone_ = false;
  std::deque<Question> questions_;
  std::vector<std::shared_ptr<Batch>> batches_;  // copied now, or to be answered
  std::size_t copying_ = 0;                      // of batches_
  std::deque<std::shared_ptr<Batch>> copied_;    // of batches_, and not yet told of
  std::map<std::uint64_t, Stored> stored_;       // by the program's name for the chunk
  std::vector<Slot> held_;                       // that it may hold without a name, as its line has ended
  Task tasks_[2];                                // by Direction
  std::optional<Direction> active_;              // the one that is under way: one at a time
  std::uint64_t moved_[2] = {};                  // chunks by Direction
};

}  // namespace tessera::mover
