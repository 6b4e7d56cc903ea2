#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "client/json.h"

namespace tessera::cli {

struct EventChoices {
  bool follow = false;
  int last = -1;  // number of past events; -1: the default
};

// `tessera events`: prints past events, and with `follow` also new ones, until the daemon ends or this program is
// stopped.
Result<int> ShowEvents(const Common& common, const EventChoices& choices);

// An event as a line for people: "Nov 22 23:49:05  vgpu.created     team-a  GPU 0  memory max:max". The time is local.
std::string FormatEvent(const client::Json& event);

// Takes the complete events out of `text`, a piece of a stream of server-sent events; an incomplete one stays there.
// {"lost": N} stands for N events that were lost.
std::vector<client::Json> TakeEvents(std::string& text);

}  // namespace tessera::cli
