// Packets over Unix sockets: one send is one message, with descriptors. Uses the C library only, because the
// shim carries it into every program.
#pragma once

#include <cstddef>
#include <span>

#include "base/unique_fd.h"

namespace tessera {

// Connects to the SOCK_SEQPACKET socket at `path`. Empty with errno set on failure (ENAMETOOLONG: more than 107 bytes).
// Connecting and each later send fail with EAGAIN if the peer takes nothing for `send_timeout_ms`; 0: never.
UniqueFd ConnectSeqpacket(const char* path, int send_timeout_ms = 0);

// Listens at `path`, in place of a file there, for this user alone. Empty with errno set on failure, as above.
UniqueFd ListenSeqpacket(const char* path, int backlog);

// Sends one packet, with `fd` attached unless it is -1, or with up to kMostDescriptors of them. Never raises SIGPIPE.
// False with errno set on failure; EAGAIN if the socket is non-blocking and the peer does not read.
inline constexpr std::size_t kMostDescriptors = 64;
bool SendPacket(int socket, std::span<const std::byte> packet, std::span<const int> fds);
bool SendPacket(int socket, std::span<const std::byte> packet, int fd = -1);

// Receives one packet into `buffer` and, if one is attached, a descriptor into *fd (close-on-exec; may be null: none is
// taken). Returns its length, 0 when the peer closed, -1 with errno set on failure, EMSGSIZE for a packet that is
// larger than the buffer (the rest of it is lost).
ssize_t ReceivePacket(int socket, std::span<std::byte> buffer, UniqueFd* fd = nullptr);
// The same with up to fds.size() descriptors, which are put into `fds` in order. Further ones are not taken, because
// closing them could block on their sender. `received`: how many came, even if the call fails after that.
ssize_t ReceivePacket(int socket, std::span<std::byte> buffer, std::span<UniqueFd> fds, std::size_t& received);

}  // namespace tessera
