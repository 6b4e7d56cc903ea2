#include "plan/model/part.h"

namespace tessera::plan {

void Part::Elapse(Nanos from, Nanos to) {
  const Nanos elapsed = to - from;
  figures.measured += elapsed;
  if (work <= 0) {
    waits_since = held_since = kNever;
    return;
  }
  figures.had_work += elapsed;
  if (Executes()) {
    figures.executed += elapsed / among;
  } else if (held) {
    figures.waited_memory += elapsed;
  } else {
    figures.waited_time += elapsed;
  }

  // Waits are noted as they grow, so that one which never ends counts too.
  if (Executes()) waits_since = kNever;
  if (Executes() || !held) held_since = kNever;
  if (!Executes()) {
    waits_since = std::min(waits_since, from);
    figures.longest_wait = std::max(figures.longest_wait, to - waits_since);
    if (held) held_since = std::min(held_since, from);
    if (held) figures.longest_memory_wait = std::max(figures.longest_memory_wait, to - held_since);
  }

  if (pace == 0) return;
  const Nanos worked = std::min({elapsed / pace, work, in_flight});
  done += worked;
  figures.progressed += worked;
  if (work != kNever) work -= worked;
  if (in_flight != kNever) in_flight -= worked;
}

}  // namespace tessera::plan
