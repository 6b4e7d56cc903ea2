// Protocol between the daemon and a checkpoint program (src/checkpoint) over its descriptor 3, a SOCK_SEQPACKET socket.
// The program first says whether it can work. Then one packet is one CheckpointRequest, and each has one
// CheckpointAnswer, in order. Both sides are of one build, so there is no version. When the daemon has closed its end,
// the program finishes the call that it is in, and ends. What a program's checkpoint consists of lives in that program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "wire/protocol.h"

namespace tessera::wire {

enum class CheckpointOperation : std::uint32_t { kState = 1, kLock = 2, kCheckpoint = 3, kRestore = 4, kUnlock = 5 };

// A program that was on the GPU `from` is restored on the GPU `to`.
struct GpuPair {
  Uuid from, to;
};
inline constexpr std::uint32_t kMostGpuPairs = 16;

struct CheckpointRequest {
  CheckpointOperation operation{};
  std::int32_t pid = 0;          // as the daemon sees it
  std::uint32_t timeout_ms = 0;  // kLock: how long to wait for the end of the program's work; 0: for ever
  std::uint32_t pair_count = 0;  // kRestore: of `pairs`; 0: on the GPUs where it was
  GpuPair pairs[kMostGpuPairs] = {};
};
static_assert(sizeof(CheckpointRequest) == 528 && std::has_unique_object_representations_v<CheckpointRequest>);

enum class CheckpointAnswerType : std::uint32_t {
  kReady = 1,   // it can work; unasked, once
  kFailed = 2,  // it cannot, and ends. error: errno value; text: why
  kDone = 3,    // a call has returned
};

inline constexpr std::int32_t kUnknownState = -1;

struct CheckpointAnswer {
  CheckpointAnswerType type{};
  CheckpointOperation operation{};     // kDone: of the request
  std::int32_t pid = 0;                // likewise
  std::int32_t result = 0;             // kDone: a CUresult
  std::int32_t state = kUnknownState;  // kDone: a CUprocessState: the program's after the call
  std::int32_t error = 0;
  std::int64_t took_ns = 0;  // kDone: the call
  char text[192] = {};       // ends with 0
};
static_assert(sizeof(CheckpointAnswer) == 224 && std::has_unique_object_representations_v<CheckpointAnswer>);

// Nothing if the packet is no request that a daemon sends.
inline std::optional<CheckpointRequest> ReadCheckpointRequest(std::span<const std::byte> packet) {
  CheckpointRequest request;
  if (packet.size() != sizeof request) return std::nullopt;
  std::memcpy(&request, packet.data(), sizeof request);
  const bool known =
      request.operation >= CheckpointOperation::kState && request.operation <= CheckpointOperation::kUnlock;
  if (!known || request.pair_count > kMostGpuPairs) return std::nullopt;
  return request;
}

// Nothing if the packet is no answer.
inline std::optional<CheckpointAnswer> ReadCheckpointAnswer(std::span<const std::byte> packet) {
  CheckpointAnswer answer;
  if (packet.size() != sizeof answer) return std::nullopt;
  std::memcpy(&answer, packet.data(), sizeof answer);
  if (answer.type < CheckpointAnswerType::kReady || answer.type > CheckpointAnswerType::kDone) return std::nullopt;
  answer.text[sizeof answer.text - 1] = 0;
  return answer;
}

inline std::span<const std::byte> BytesOf(const CheckpointRequest& request) {
  return std::as_bytes(std::span(&request, 1));
}
inline std::span<const std::byte> BytesOf(const CheckpointAnswer& answer) {
  return std::as_bytes(std::span(&answer, 1));
}

}  // namespace tessera::wire
