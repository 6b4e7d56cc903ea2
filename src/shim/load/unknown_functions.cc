#include "shim/load/unknown_functions.h"

#include <string.h>

#include <atomic>

namespace tessera::shim {
namespace {

struct Slot {
  enum State { kFree, kWriting, kWritten };
  std::atomic<State> state{kFree};
  char name[kUnknownNameBytes]{};
};

constinit Slot slots[kMostUnknown];
constinit std::atomic<void (*)(const char*)> told{nullptr};

}  // namespace

void NoteUnknown(const char* name) {
  for (Slot& slot : slots) {
    Slot::State state = Slot::kFree;
    if (slot.state.compare_exchange_strong(state, Slot::kWriting)) {
      strncpy(slot.name, name, sizeof slot.name - 1);
      slot.state = Slot::kWritten;
      if (auto* const tell = told.load()) tell(slot.name);
      return;
    }
    // One that another thread writes right now may be the same: then it is kept twice.
    if (state == Slot::kWritten && strncmp(slot.name, name, sizeof slot.name - 1) == 0) return;
  }
}

void EachUnknown(void (*say)(const char* name)) {
  for (const Slot& slot : slots) {
    if (slot.state == Slot::kWritten) say(slot.name);
  }
}

void OnUnknown(void (*say)(const char* name)) { told = say; }

}  // namespace tessera::shim
