#pragma once

#include <cstdint>
#include <optional>

#include "face/http/event_streams.h"
#include "server/daemon/control.h"

namespace tessera::face {

// The stream that follows an answer: its place, and the number of the event after which it starts.
struct Following {
  EventStreams::Place place;
  std::uint64_t after;
};

// What belongs to the request that this thread answers, and that httplib does not hand to a handler.
//
// The daemon as the caller may use it. None: by TCP without the token.
inline thread_local std::optional<server::Control> asker;
// Set by a handler; taken by who has the connection.
inline thread_local std::optional<Following> following;

}  // namespace tessera::face
