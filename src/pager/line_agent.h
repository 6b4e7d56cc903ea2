// The program's side of the line: answers what the mover asks (src/wire/line.h) by changing the backing of the heap's
// chunks. The daemon sees to it that the program's work stands still whenever the mover asks.
#pragma once

#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "pager/heap.h"
#include "wire/line.h"

namespace tessera::pager {

// Not thread-safe; the heap is.
class LineAgent {
 public:
  explicit LineAgent(Heap& heap) : heap_(heap) {}

  struct Answer {
    wire::LineMessage message;
    std::vector<UniqueFd> fds;  // go along with it
  };

  // Acts on a message of the mover's, with the descriptors that came along. What is to be sent back, in order: the
  // answer, if the message has one. False: it is no message of a mover's, or the program is let go on without one
  // (Room::Released); the line is to be closed, without an answer.
  bool On(const wire::LineMessage& message, std::span<UniqueFd> fds, std::vector<Answer>* answers);

  // What the mover has to hear without having asked: chunks that were freed while they were stored.
  void TakeDropped(std::vector<Answer>* answers);

  // The line is gone, and with it what was under way: chunks that were offered or wanted stay as they are.
  void Lost();

  // To a new mover: all that lies in host memory, or in the file. What it does not find stays there, and is not spoken
  // of.
  void Adopt(std::vector<Answer>* answers);

 private:
  using Message = wire::LineMessage;
  bool Act(const Message& message, std::span<UniqueFd> fds, std::vector<Answer>* answers);
  void TakeDroppedLocked(std::vector<Answer>* answers);
  Answer Offer(std::uint32_t most);
  Answer Want(std::uint32_t most);
  Answer Stored(const Message& message, std::span<UniqueFd> fds);
  Answer Loaded(const Message& message);
  void Mark(std::size_t index, bool Chunk::* copy, bool under_way);
  void SetComing(std::size_t index, Driver::Handle handle);
  void LeaveOut(std::size_t index);
  Answer Settle();
  Answer Filed(const Message& message);
  Answer Read(const Message& message, std::span<UniqueFd> fds);
  bool Adopted(const Message& message);
  cuda::CUresult MapHost(std::size_t index);
  // The indices of the named chunks of the large region; empty if one is not what it should be.
  template <typename Is>
  std::vector<std::size_t> Indices(const Message& message, Is is) const;
  // The best `most` chunks that `may` be taken, coldest or hottest first.
  template <typename May>
  std::vector<std::size_t> Best(std::uint32_t most, bool coldest, May may) const;

  Heap& heap_;
};

}  // namespace tessera::pager
