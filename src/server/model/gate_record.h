#pragma once

#include <cstdint>

#include "base/clock.h"
#include "server/model/shared_page.h"
#include "server/record/histogram.h"

namespace tessera::server {

// The gate of one process on one GPU, as the daemon knows it. docs/protocol.md tells the conversation.
struct GateRecord {
  enum class State {
    kParked,    // nothing queued: its next submission sends Wants
    kWanting,   // a submission waits at the closed gate
    kRunning,   // open, and there is work
    kDraining,  // closed, but what it had queued runs: Released is awaited
  };
  // What stops the process where channels divide the time.
  enum class StoppedBy {
    kChannels,  // they are known: a freeze
    kGate,      // they are not known
    kBoth,      // some are not: it was seen to go on while those that are known were frozen
  };
  struct Stop {
    StoppedBy by = StoppedBy::kChannels;
    // kGate: the device has seen it work lately, or does not tell. Others need not stand back for work that nobody saw.
    bool believed = false;
    bool operator==(const Stop&) const = default;
    bool AtGate() const { return by != StoppedBy::kChannels; }
    bool Freezes() const { return by != StoppedBy::kGate; }
  };
  explicit GateRecord(SharedPage& page, pid_t pid = 0) : page(page), pid(pid) {}
  SharedPage& page;
  const pid_t pid;
  // A submission waits at it from now on, or its work runs.
  void Wants(Nanos now) {
    if (state != State::kWanting) wants_since = now;
    state = State::kWanting;
  }
  void Runs(Nanos now) {
    if (waits && state != State::kRunning) waits->Note(state == State::kWanting ? now - wants_since : 0);
    state = State::kRunning;
  }
  // Whether the scheduler counts what the process runs as work in this vGPU.
  bool Counts() const { return ungated || state == State::kWanting || state == State::kRunning; }
  // What it has queued drains; it says when that is done.
  void Close(wire::GateOrder order = wire::GateOrder::kClosed) {
    page.Give({order, 0, 0});
    state = State::kDraining;
    closing_epoch = page.Epoch();
  }
  State state = State::kParked;
  Stop stop;
  Nanos wants_since = 0;
  Histogram* waits = nullptr;       // its vGPU's, of waits for the GPU's time
  bool held = false;                // frozen by an operator, or for memory: it takes no part
  bool ungated = false;             // nobody waits at it: the program has no shim
  std::uint32_t closing_epoch = 0;  // of the order that closed it before kDraining
  Nanos opened_at = 0;
  Nanos slice = 0;  // of its channels, as last ordered; 0: the driver's default
  // Of its vGPU at the server that it joined; null before Join and after the vGPU is gone.
  struct TokenState* token = nullptr;
  struct SteeringState* steered = nullptr;
};

}  // namespace tessera::server
