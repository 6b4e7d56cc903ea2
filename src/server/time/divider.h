#pragma once

#include <cstdint>

namespace tessera::server {

// The ways to divide a GPU's time among its vGPUs, best first.
enum class Divider : std::uint8_t {
  kChannels,  // slices and freezes of channels: SteeringServer
  kGates,     // a token that opens the gates of one vGPU at a time: TokenServer
};

// Whether it leaves gates open and stops vGPUs by freezing their channels.
constexpr bool FreezesChannels(Divider divider) { return divider == Divider::kChannels; }

// The name in the API and in listings.
constexpr const char* NameOf(Divider divider) { return divider == Divider::kChannels ? "channels" : "gate"; }

}  // namespace tessera::server
