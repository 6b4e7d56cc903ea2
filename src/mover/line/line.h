#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "mover/line/packet_socket.h"
#include "wire/line.h"

namespace tessera::mover {

// A message of a program's, with the descriptors that came along.
struct LinePacket {
  wire::LineMessage message;
  std::vector<UniqueFd> fds;
};

// The mover's end of the line to one program. Sending never blocks. For the loop's thread.
class Line {
 public:
  Line(int epoll, UniqueFd socket) : socket_(epoll, std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  bool open() const { return fd() >= 0; }

  void Send(const wire::LineMessage& message, std::span<const int> fds = {});
  // Sends a message that names these chunks.
  void Say(wire::LineType type, std::span<const std::uint64_t> chunks);
  void OnWritable();
  // Sending failed: the caller is to close the line, when it is not in the middle of something.
  bool broken() const { return broken_; }
  void Break() { broken_ = true; }

  // The next message, if there is one. EPIPE: the program has closed its end. EPROTO: it sent what is no message, or
  // has other descriptors than its type says, or one whose close could wait.
  Result<std::optional<LinePacket>> Receive();
  void Close();

 private:
  void Note(bool sent);

  PacketSocket socket_;
  bool broken_ = false;
};

// The chunks that a message names.
inline std::span<const std::uint64_t> ChunksOf(const wire::LineMessage& message) {
  return {message.chunk, message.count};
}
bool Names(const wire::LineMessage& message, std::uint64_t chunk);
// The errno value of what a program's driver said.
int ErrorOf(const wire::LineMessage& message);
// Whether the program's driver does not import the memory at all: it was not short of memory.
bool IsRefusal(const wire::LineMessage& message);

}  // namespace tessera::mover
