#include "mover/line/line.h"

#include <algorithm>
#include <cerrno>

#include "base/descriptor.h"
#include "base/seqpacket.h"
#include "cuda/cuda_abi.h"

namespace tessera::mover {

using wire::LineMessage;

// Where the program has hung up nothing is broken: what it said before is still to be read, and then its end.
void Line::Note(bool sent) { broken_ |= !sent && errno != EPIPE && errno != ECONNRESET; }

void Line::Send(const LineMessage& message, std::span<const int> fds) { Note(socket_.Send(BytesOf(message), fds)); }

void Line::Say(wire::LineType type, std::span<const std::uint64_t> chunks) {
  LineMessage message = {.type = type, .count = static_cast<std::uint32_t>(chunks.size())};
  std::ranges::copy(chunks, message.chunk);
  Send(message);
}

void Line::OnWritable() { Note(socket_.Flush()); }

void Line::Close() {
  socket_.Close();
  broken_ = false;
}

Result<std::optional<LinePacket>> Line::Receive() {
  std::byte buffer[sizeof(LineMessage)];
  UniqueFd fds[kMostDescriptors];
  std::size_t received = 0;
  const auto takes = CanCloseNoMore() ? std::span<UniqueFd>() : std::span<UniqueFd>(fds);
  const ssize_t length = ReceivePacket(fd(), buffer, takes, received);
  if (length < 0 && errno == EAGAIN) return std::nullopt;
  const bool ended = length == 0 || (length < 0 && errno == ECONNRESET);
  bool prompt = true;
  for (UniqueFd& file : std::span(fds).first(received)) {
    if (IsPrompt(file.Get())) continue;
    CloseElsewhere(std::move(file));
    prompt = false;
  }
  if (ended) return Fail(EPIPE, "it has closed the line");
  const auto message = wire::ReadLine(std::span(buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
  if (!prompt || !message || received != DescriptorsOf(*message))
    return Fail(EPROTO, "it sent a packet that is no message, or has other descriptors than it should");
  LinePacket packet = {.message = *message, .fds = {}};
  for (std::size_t i = 0; i < received; ++i) packet.fds.push_back(std::move(fds[i]));
  return packet;
}

bool Names(const LineMessage& message, std::uint64_t chunk) {
  return std::ranges::find(ChunksOf(message), chunk) != ChunksOf(message).end();
}

int ErrorOf(const LineMessage& message) { return message.error == cuda::CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EIO; }

bool IsRefusal(const LineMessage& message) { return message.error != 0 && ErrorOf(message) != ENOMEM; }

}  // namespace tessera::mover
