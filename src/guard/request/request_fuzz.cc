#include "guard/request/request_fuzz.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "guard/request/requests.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

std::uint32_t Word(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t word = 0;
  if (offset + sizeof word <= bytes.size()) std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

// Said once more in the simplest way: what must never be let through, or done without a look.
bool MayPass(std::uint32_t number, std::span<const std::byte> argument, std::span<const std::byte> params) {
  switch (number) {
    case abi::kAlloc:
      return Word(argument, 12) != abi::kMemoryLocal && Word(argument, 12) != 0xc2;
    case kAllocMemory: {
      const std::uint32_t cls = Word(argument, 12);
      return cls == 0x3e || cls == 0x3f || cls == 0x40 || cls == 0x70 || cls == 0x71;
    }
    case kAllocObject: {
      const std::uint32_t cls = Word(argument, 12);
      return cls != 0x40 && cls != 0x80 && cls != 0xa06c && cls != 0xc86f && cls != 0xc2;
    }
    case abi::kControl: {
      const std::uint32_t command = Word(argument, 8);
      if (command == abi::kGroupSchedule) return !params.empty() && params[0] != std::byte{0};
      return command != abi::kDisableChannels && command != abi::kGroupSetSlice && command != 0x20801117 &&
             command != 0x801711 && command != 0x20801115;
    }
    case abi::kHeapControl: {
      const std::uint32_t function = Word(argument, 8), location = Word(argument, 56) >> 25 & 3;
      const bool takes_memory = function == 2 || function == 14;
      return !takes_memory || (Word(argument, 52) & 0x80000) != 0 || location == 1 || location == 2;
    }
    default:
      return number != kWrapped;
  }
}

}  // namespace

bool RunRequest(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < 2) return true;
  const GuardedSize guarded = kGuardedSizes[bytes[0] % kGuardedSizes.size()];
  // Mostly of the right size; else of any.
  const std::size_t size = bytes[1] < 0xf0 ? guarded.bytes : bytes[1] - 0xf0u;
  bytes = bytes.subspan(2);
  std::array<std::byte, kMostArgumentBytes> buffer{};
  const std::size_t given = std::min(size, bytes.size());
  std::memcpy(buffer.data(), bytes.data(), given);
  const auto argument = std::span(buffer).first(size);
  const auto params = std::as_bytes(bytes.subspan(given));

  const Request request = Decode(guarded.number, argument);
  if (request.kind != Request::Kind::kWrapped && request.status_offset + 4 > size) return false;
  if (request.kind != Request::Kind::kWrapped && request.object_offset + 4 > size) return false;
  const std::size_t wanted = ParamsWanted(request);
  if (wanted > sizeof(abi::DisableChannels)) return false;
  const auto seen = params.first(std::min(wanted, params.size()));
  const Decision decision = Decide(request, seen);
  (void)MemoryBytes(params);
  (void)Detail(request.cls, params);
  if (decision.action == Action::kAnswer && decision.status != 0 && decision.why.empty()) return false;
  if (decision.action == Action::kFail) return decision.error != 0;
  if (size != guarded.bytes) return decision.action == Action::kFail;
  if (decision.action == Action::kOwnChannels) return seen.size() == wanted && seen[0] == std::byte{1};
  return decision.action != Action::kPass || MayPass(guarded.number, argument, seen);
}

}  // namespace tessera::guard
