// The mover's end of a program's line, for tests that play the mover.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/seqpacket.h"
#include "base/unique_fd.h"
#include "shim/testing/fake_cuda.h"
#include "wire/line.h"

namespace tessera::shim {

inline void SayOn(const UniqueFd& line, const wire::LineMessage& message) {
  EXPECT_TRUE(SendPacket(line.Get(), wire::BytesOf(message)));
}

// The next message of the program's, and the descriptors that came along.
inline wire::LineMessage HearOn(const UniqueFd& line, std::vector<UniqueFd>* along = nullptr) {
  alignas(8) std::byte packet[sizeof(wire::LineMessage)];
  UniqueFd fds[wire::kMostChunks];
  std::size_t received = 0;
  const ssize_t length = ReceivePacket(line.Get(), packet, fds, received);
  EXPECT_EQ(length, ssize_t{sizeof packet});
  for (std::size_t i = 0; along && i < received; ++i) along->push_back(std::move(fds[i]));
  return wire::ReadLine(packet).value_or(wire::LineMessage{});
}

// Has one chunk brought out, as a mover does, under the key 77.
inline void EvictOn(const UniqueFd& line, FakeCuda& cuda) {
  SayOn(line, {.type = wire::LineType::kEvict, .count = 1});
  std::vector<UniqueFd> gpu_memory;
  const wire::LineMessage offer = HearOn(line, &gpu_memory);
  ASSERT_EQ(offer.type, wire::LineType::kOffer);
  ASSERT_EQ(offer.count, 1u);
  UniqueFd host;
  const auto handle = cuda.memory.MakeForMover(wire::kChunkBytes, true, cuda.memory.WordsOf(gpu_memory[0]), &host);
  wire::LineMessage stored{.type = wire::LineType::kStored, .count = 1};
  stored.chunk[0] = offer.chunk[0];
  stored.key[0] = 77;
  const int fd = host.Get();
  ASSERT_TRUE(SendPacket(line.Get(), wire::BytesOf(stored), std::span(&fd, 1)));
  EXPECT_EQ(HearOn(line).type, wire::LineType::kFreed);
  cuda.memory.DropForMover(handle);
}

}  // namespace tessera::shim
