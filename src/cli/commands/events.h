#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "client/json.h"

namespace tessera::cli {

struct EventChoices {
  bool follow = false;
  int last = -1;  // how many of the past; -1: the default
};

// `tessera events`: what happened, and with `follow` what happens, until the daemon ends or this program is stopped.
Result<int> ShowEvents(const Common& common, const EventChoices& choices);

// One event as people read it: "Nov 22 23:49:05  vgpu.created     team-a  GPU 0  memory max:max". The time is local.
std::string FormatEvent(const client::Json& event);

// The events in a piece of a stream of server-sent events, as JSON; what is not whole yet stays in `text`.
// {"lost": N} where N of them are lost.
std::vector<client::Json> TakeEvents(std::string& text);

}  // namespace tessera::cli
