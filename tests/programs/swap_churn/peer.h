#pragma once

#include "buffer.h"

namespace tessera::churn {

// A second process, which works on memory of this one by IPC handles. It ends with this one.
class Peer {
 public:
  // Starts it. This process must not have called the driver before.
  Peer();
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Opens the buffer there, if there is place; buffer.slot says whether.
  cuda::CUresult Open(Buffer& buffer);
  // Steps the words there, after all work before; how many of them it saw otherwise than they must be.
  std::uint64_t Step(Buffer& buffer, std::uint64_t factor, std::uint64_t term);
  void Close(Buffer& buffer);

 private:
  static constexpr int kSlots = 2;

  int socket_ = -1;
  bool taken_[kSlots] = {};
};

}  // namespace tessera::churn
