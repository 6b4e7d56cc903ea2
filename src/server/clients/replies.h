#pragma once

#include <cerrno>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/seqpacket.h"
#include "wire/protocol.h"

namespace tessera::server {

// Why a packet ends the connection of the program that sent it; null: it does not.
using Complaint = const char*;

// Sends answers to a program. Never blocks: a program that does not read its replies is cut off.
class Replies {
 public:
  // The socket outlives the object.
  explicit Replies(int socket) : socket_(socket) {}

  template <typename Body>
  Complaint Send(const Body& body, std::uint32_t gpu = 0, std::span<const int> fds = {}) const {
    if (SendPacket(socket_, wire::BytesOf(wire::Make(body, gpu)), fds)) return nullptr;
    return errno == EPIPE || errno == ECONNRESET ? "closed its socket before its reply came"
                                                 : "does not read its replies";
  }
  Complaint Refuse(const Error& error) const {
    wire::Refused refused{.code = error.code};
    wire::SetText(refused.text, error.Text());
    return Send(refused);
  }

 private:
  const int socket_;
};

}  // namespace tessera::server
